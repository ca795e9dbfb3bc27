#pragma once

#include <stdexcept>
#include <string>

namespace fastloader {

/// Root of everything the native code throws. Python sees `fastloader.Error`.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller passed something that can never work. Python sees `ValueError`.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// A device, driver or memory registration failed. Sticky on its stream.
class BackendError : public Error {
 public:
  using Error::Error;
};

/// The backend cannot be used on this machine at all (not compiled in, no driver, no device).
/// Conformance tests skip on this and on nothing else.
class BackendUnavailable : public BackendError {
 public:
  using BackendError::BackendError;
};

/// A sample's bytes cannot be had: a file that is missing, unreadable, or a folder.
class SourceError : public Error {
 public:
  using Error::Error;
};

/// The bytes of a picture cannot be turned into pixels. Belongs to one sample, not to the program.
class DecodeError : public Error {
 public:
  using Error::Error;
};

/// The picture may be fine, but this decoder does not know its kind: give it to another one.
class UnsupportedImage : public DecodeError {
 public:
  using DecodeError::DecodeError;
};

/// The picture would take more memory or time than any real one: no other decoder is to try.
class RefusedImage : public DecodeError {
 public:
  using DecodeError::DecodeError;
};

/// The caller has given the work up meanwhile.
class Stopped : public Error {
 public:
  using Error::Error;
};

}  // namespace fastloader

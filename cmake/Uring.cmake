# Finds liburing, with which files are read ahead side by side, and says what is compiled and linked:
# FASTLOADER_URING_SOURCE and FASTLOADER_URING_LIBRARY. Without it, threads read them.
if(NOT FASTLOADER_URING MATCHES "^(auto|on|off)$")
  message(FATAL_ERROR "FASTLOADER_URING=${FASTLOADER_URING}: use auto, on or off")
endif()
set(FASTLOADER_URING_SOURCE csrc/source/uring/absent.cpp)
set(FASTLOADER_URING_LIBRARY "")
if(NOT FASTLOADER_URING STREQUAL "off")
  find_path(URING_INCLUDE_DIR liburing.h)
  # The static one first: a build runs then where there is no liburing.
  find_library(URING_LIBRARY NAMES liburing.a uring)
endif()
if(NOT FASTLOADER_URING STREQUAL "off" AND URING_INCLUDE_DIR AND URING_LIBRARY)
  set(FASTLOADER_URING_SOURCE csrc/source/uring/file_queue.cpp)
  add_library(fastloader_uring INTERFACE)
  target_include_directories(fastloader_uring SYSTEM INTERFACE ${URING_INCLUDE_DIR})
  target_link_libraries(fastloader_uring INTERFACE ${URING_LIBRARY})
  set(FASTLOADER_URING_LIBRARY fastloader_uring)
  message(STATUS "fastloader: io_uring with ${URING_LIBRARY}")
elseif(FASTLOADER_URING STREQUAL "on")
  message(FATAL_ERROR "FASTLOADER_URING=on, but liburing was not found.\n"
    "  Debian, Ubuntu:  apt-get install liburing-dev\n"
    "  Fedora, RHEL:    dnf install liburing-devel")
else()
  message(STATUS "fastloader: without io_uring (FASTLOADER_URING=${FASTLOADER_URING})")
endif()

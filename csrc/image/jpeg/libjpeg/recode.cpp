#include "image/jpeg/libjpeg/recode.h"

#include <cstdlib>
#include <cstring>

#include "image/jpeg/file.h"
#include "image/jpeg/libjpeg/session.h"
#include "image/jpeg/options.h"

namespace fastloader {
namespace {

constexpr unsigned kLongestSegment = 0xffff;
constexpr int kApp0 = JPEG_APP0;
constexpr int kAdobe = JPEG_APP0 + 14;

/// libjpeg's reading half is the session's. Errors of its writing half jump there, too.
struct Recoding {
  JpegSession session;  // first: a step gets its address
  jpeg_compress_struct written;
  jvirt_barray_ptr* coefficients;
  unsigned char* bytes;  // malloc's, by jpeg_mem_dest
  unsigned long size;

  ~Recoding() {
    if (written.err != nullptr) jpeg_destroy_compress(&written);
    std::free(bytes);
    session.end();
  }
};

Recoding& recoding_of(JpegSession& session) { return reinterpret_cast<Recoding&>(session); }

void read(JpegSession& session) {
  jpeg_save_markers(&session.info, JPEG_COM, kLongestSegment);
  for (int number = 0; number < 16; ++number) {
    jpeg_save_markers(&session.info, JPEG_APP0 + number, kLongestSegment);
  }
  jpeg_read_header(&session.info, TRUE);
  recoding_of(session).coefficients = jpeg_read_coefficients(&session.info);
}

bool begins(const jpeg_saved_marker_ptr segment, const char* name, unsigned size) {
  return segment->data_length >= size && std::memcmp(segment->data, name, size) == 0;
}

void write(JpegSession& session) {
  Recoding& recoding = recoding_of(session);
  jpeg_compress_struct& written = recoding.written;
  written.err = &session.errors;
  written.client_data = &session;
  jpeg_create_compress(&written);
  jpeg_mem_dest(&written, &recoding.bytes, &recoding.size);
  jpeg_copy_critical_parameters(&session.info, &written);
  written.optimize_coding = TRUE;
  jpeg_write_coefficients(&written, recoding.coefficients);
  for (jpeg_saved_marker_ptr each = session.info.marker_list; each != nullptr; each = each->next) {
    // libjpeg has written these two by itself.
    if (written.write_JFIF_header && each->marker == kApp0 && begins(each, "JFIF", 5)) continue;
    if (written.write_Adobe_marker && each->marker == kAdobe && begins(each, "Adobe", 5)) continue;
    jpeg_write_marker(&written, each->marker, each->data, each->data_length);
  }
  jpeg_finish_compress(&written);
}

/// Whether the decoder of our own begins with it, as one that is progressive: then its scans are
/// complete.
bool is_complete_and_progressive(const uint8_t* data, size_t size) {
  JpegFile file;
  if (read_jpeg_file(data, size, file) != JpegRefusal::kNone || !file.progressive) return false;
  const uint64_t pixels = uint64_t{file.width} * file.height;
  return pixels <= PictureOptions().pixel_limit && pixels * file.scans.size() <= kMostWork;
}

}  // namespace

std::optional<std::vector<uint8_t>> recode_as_sequential(const uint8_t* data, size_t size) {
  if (!is_complete_and_progressive(data, size)) return std::nullopt;
  Recoding recoding{};
  JpegSession& session = recoding.session;
  const bool done = session.start(data, size) && session.run(read) &&
                    session.errors.num_warnings == 0 && session.run(write);
  if (!done) return std::nullopt;
  return std::vector<uint8_t>(recoding.bytes, recoding.bytes + recoding.size);
}

}  // namespace fastloader

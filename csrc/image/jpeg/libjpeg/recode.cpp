#include "image/jpeg/libjpeg/recode.h"

#include <cstring>

#include "image/jpeg/file.h"
#include "image/jpeg/libjpeg/session.h"
#include "image/jpeg/options.h"
#include "image/jpeg/pillow_header.h"

namespace fastloader {
namespace {

constexpr unsigned kLongestSegment = 0xffff;
constexpr int kAppSegments = 16;
/// More than the tables and headers that libjpeg writes.
constexpr size_t kRoomForTables = 4096;

/// libjpeg's reading half is the session's. Errors of its writing half jump there, too.
struct Recoding {
  JpegSession session;  // first: a step gets its address
  jpeg_compress_struct written;
  jpeg_destination_mgr destination;
  jvirt_barray_ptr* coefficients;
  uint32_t restart_interval;

  ~Recoding() {
    if (written.err != nullptr) jpeg_destroy_compress(&written);
    session.end();
  }
};

Recoding& recoding_of(JpegSession& session) { return reinterpret_cast<Recoding&>(session); }

void save_segments(jpeg_decompress_struct& info, unsigned length) {
  jpeg_save_markers(&info, JPEG_COM, length);
  for (int number = 0; number < kAppSegments; ++number) {
    jpeg_save_markers(&info, JPEG_APP0 + number, length);
  }
}

void read(JpegSession& session) {
  save_segments(session.info, kLongestSegment);
  jpeg_read_header(&session.info, TRUE);
  save_segments(session.info, 0);  // nobody reads those between the scans
  recoding_of(session).coefficients = jpeg_read_coefficients(&session.info);
}

/// Of several pictures in one file, by their places in it.
bool lists_pictures(const jpeg_decompress_struct& info) {
  constexpr char kName[] = {'M', 'P', 'F', '\0'};
  for (jpeg_saved_marker_ptr each = info.marker_list; each != nullptr; each = each->next) {
    if (each->marker == JPEG_APP0 + 2 && each->data_length >= sizeof kName &&
        std::memcmp(each->data, kName, sizeof kName) == 0) {
      return true;
    }
  }
  return false;
}

boolean on_full(j_compress_ptr info) {
  info->err->error_exit(reinterpret_cast<j_common_ptr>(info));
  return FALSE;
}

void write(JpegSession& session) {
  Recoding& recoding = recoding_of(session);
  jpeg_compress_struct& written = recoding.written;
  written.err = &session.errors;
  written.client_data = &session;
  jpeg_create_compress(&written);
  written.dest = &recoding.destination;
  jpeg_copy_critical_parameters(&session.info, &written);
  written.optimize_coding = TRUE;
  written.restart_interval = recoding.restart_interval;
  // The file's own follow, if it has them; what it lacks decides about its colours as well.
  written.write_JFIF_header = FALSE;
  written.write_Adobe_marker = FALSE;
  jpeg_write_coefficients(&written, recoding.coefficients);
  for (jpeg_saved_marker_ptr each = session.info.marker_list; each != nullptr; each = each->next) {
    jpeg_write_marker(&written, each->marker, each->data, each->data_length);
  }
  jpeg_finish_compress(&written);
}

/// Whether the decoder of our own begins with it, as one that is progressive: then its scans are
/// complete.
bool may_be_recoded(const uint8_t* data, size_t size, JpegFile& file) {
  if (read_jpeg_file(data, size, file) != JpegRefusal::kNone || !file.progressive) return false;
  const uint64_t pixels = uint64_t{file.width} * file.height;
  return pixels <= PictureOptions().pixel_limit && pixels * file.scans.size() <= kMostWork &&
         stumbling_block_of_pillow(data, size) == nullptr;
}

}  // namespace

std::optional<std::vector<uint8_t>> recode_as_sequential(const uint8_t* data, size_t size) {
  JpegFile file;
  if (!may_be_recoded(data, size, file)) return std::nullopt;
  std::vector<uint8_t> bytes(2 * size + kRoomForTables);
  Recoding recoding{};
  JpegSession& session = recoding.session;
  const ProgressiveScan& first = file.scans.front();
  recoding.restart_interval = first.components == file.components ? first.restart_interval : 0;
  recoding.destination.init_destination = [](j_compress_ptr) {};
  recoding.destination.term_destination = [](j_compress_ptr) {};
  recoding.destination.empty_output_buffer = on_full;
  recoding.destination.next_output_byte = bytes.data();
  recoding.destination.free_in_buffer = bytes.size();
  if (!session.start(data, size) || !session.run(read) || session.errors.num_warnings != 0 ||
      session.source.bytes_in_buffer != 0 || lists_pictures(session.info) || !session.run(write)) {
    return std::nullopt;
  }
  bytes.resize(bytes.size() - recoding.destination.free_in_buffer);
  return bytes;
}

}  // namespace fastloader

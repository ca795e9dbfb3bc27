#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/xxh3.h"
#include "image/crop.h"
#include "image/dispatch.h"
#include "image/draw_numbers.h"
#include "image/jpeg/decoder.h"
#include "image/jpeg/file.h"
#include "image/jpeg/huffman.h"
#include "image/jpeg/libjpeg/library.h"
#include "image/jpeg/seek/writer.h"

// What jpeg_decode.py runs on each of its sets of pictures.
//
//   jpeg_decode FOLDER [ROUNDS]
//   jpeg_decode FOLDER check REGIONS   compares that many random regions of each picture, untimed
//
// Decodes all JPEGs below the folder from memory, on one thread of one CPU: the box of a
// RandomResizedCrop, and the whole. JpegDecoder does it with our own decoder, on each instruction
// set that there is, without and with a seek index, and with libjpeg-turbo as before. All take
// their turns with each 25 pictures, so that drift of the machine hits all alike. A round's ratio
// is libjpeg's CPU time for all pictures over ours. Prints JSON; fails if a pixel differs.

namespace fastloader {
namespace {

struct Picture {
  std::string name;
  std::vector<uint8_t> bytes;
  std::vector<uint8_t> index;
  JpegRegion whole;
  JpegRegion box;
};

struct Contender {
  std::string name;
  JpegOptions options;
  std::unique_ptr<JpegDecoder> decoder;
  bool indexed = false;

  void begin(const Picture& picture, const JpegRegion& region) {
    JpegOptions mine = options;
    if (indexed) mine.seek_index = {picture.index.data(), picture.index.size()};
    decoder->open(picture.bytes.data(), picture.bytes.size(), mine);
    decoder->begin(region);
  }
};

/// Seconds of all pictures, by round and contender.
using Rounds = std::vector<std::vector<double>>;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// To the CPU it runs on; returns which that is.
int pin() {
  const int cpu = sched_getcpu();
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(static_cast<size_t>(cpu), &only);
  if (cpu < 0 || sched_setaffinity(0, sizeof only, &only) != 0) {
    throw std::runtime_error("cannot stay on one CPU");
  }
  return cpu;
}

bool has_vbmi() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512vbmi") != 0;
#else
  return false;
#endif
}

std::vector<Contender> make_contenders() {
  std::vector<Contender> contenders(1);
  contenders[0].name = "libjpeg-turbo";
  contenders[0].options.own = false;
  contenders[0].decoder = std::make_unique<JpegDecoder>();
  for (const std::string& isa : available_isa_names()) {
    contenders.push_back({isa, {}, std::make_unique<JpegDecoder>(isa_by_name(isa))});
  }
  for (const std::string& isa : available_isa_names()) {
    contenders.push_back(
        {isa + ", with index", {}, std::make_unique<JpegDecoder>(isa_by_name(isa)), true});
  }
  return contenders;
}

bool is_jpeg(const std::filesystem::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return ending == ".jpg" || ending == ".jpeg";
}

std::vector<std::filesystem::path> find_jpegs(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && is_jpeg(entry.path())) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<uint8_t> pixels(Contender& contender, const Picture& picture,
                            const JpegRegion& region) {
  std::vector<uint8_t> rgb;
  contender.begin(picture, region);
  for (uint32_t y = 0; y < region.height; ++y) {
    const uint8_t* row = contender.decoder->read_row();
    rgb.insert(rgb.end(), row, row + size_t{region.width} * 3);
  }
  return rgb;
}

/// Throws DecodeError for what a loader would leave to Pillow.
Picture read_picture(const std::filesystem::path& path, size_t number, Contender& libjpeg) {
  Picture picture;
  picture.name = path.string();
  std::ifstream file(path, std::ios::binary);
  picture.bytes.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  const JpegHeader& header = libjpeg.decoder->open(picture.bytes.data(), picture.bytes.size());
  picture.whole = {0, 0, header.width, header.height};
  Draws draws(0, number, kDrawCrop);
  const CropBox box = random_resized_crop({header.height, header.width}, CropRange(), draws);
  picture.box = {static_cast<uint32_t>(box.left), static_cast<uint32_t>(box.top),
                 static_cast<uint32_t>(box.width), static_cast<uint32_t>(box.height)};
  pixels(libjpeg, picture, picture.whole);
  picture.index = make_seek_index(picture.bytes.data(), picture.bytes.size());
  return picture;
}

std::vector<Picture> read_pictures(const std::string& folder, Contender& libjpeg) {
  std::vector<Picture> pictures;
  for (const std::filesystem::path& path : find_jpegs(folder)) {
    try {
      pictures.push_back(read_picture(path, pictures.size(), libjpeg));
    } catch (const DecodeError& error) {
      std::fprintf(stderr, "left out: %s: %s\n", path.c_str(), error.what());
    }
  }
  if (pictures.empty()) throw std::runtime_error("no JPEG in " + folder);
  return pictures;
}

double timed(Contender& contender, const Picture& picture, const JpegRegion& region) {
  const double begun = cpu_seconds();
  contender.begin(picture, region);
  for (uint32_t y = 0; y < region.height; ++y) contender.decoder->read_row();
  return cpu_seconds() - begun;
}

/// Fails if a contender makes other pixels than libjpeg; returns how many bytes they have.
size_t expect_same(std::vector<Contender>& contenders, const Picture& picture,
                   const JpegRegion& region) {
  const std::vector<uint8_t> expected = pixels(contenders[0], picture, region);
  for (size_t i = 1; i < contenders.size(); ++i) {
    if (pixels(contenders[i], picture, region) != expected) {
      throw std::runtime_error(picture.name + ": other pixels with " + contenders[i].name);
    }
  }
  return expected.size();
}

/// Also what warms everything up. Returns why libjpeg made how many of the pictures.
std::map<std::string, size_t> check(std::vector<Contender>& contenders,
                                    const std::vector<Picture>& pictures,
                                    JpegRegion Picture::* region) {
  std::map<std::string, size_t> handed_over;
  for (const Picture& picture : pictures) {
    expect_same(contenders, picture, picture.*region);
    const JpegDecoder& best = *contenders[1].decoder;
    if (best.made_by() == JpegMaker::kLibjpeg) ++handed_over[name_of(best.refusal())];
  }
  return handed_over;
}

/// By pictures of a block and not picture by picture: who decodes what another has just decoded
/// with the same code finds a processor that has learnt its branches.
constexpr size_t kBlock = 25;

Rounds measure(std::vector<Contender>& contenders, const std::vector<Picture>& pictures,
               JpegRegion Picture::* region, size_t rounds) {
  Rounds seconds(rounds, std::vector<double>(contenders.size()));
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t begin = 0; begin < pictures.size(); begin += kBlock) {
      const size_t end = std::min(begin + kBlock, pictures.size());
      for (size_t turn = 0; turn < contenders.size(); ++turn) {
        // Another is first each time: the first finds the files' bytes less near.
        const size_t i = (turn + begin / kBlock + round) % contenders.size();
        for (size_t p = begin; p < end; ++p) {
          seconds[round][i] += timed(contenders[i], pictures[p], pictures[p].*region);
        }
      }
    }
  }
  return seconds;
}

/// Seconds for all pictures, of each round.
struct SmallCosts {
  std::vector<double> tables;  ///< Huffman tables, of which most pictures bring their own
  std::vector<double> hash;    ///< of the files' content, which each decode with an index does
  std::vector<double> index;   ///< making it
};

void measure_small_costs(const std::vector<Picture>& pictures, SmallCosts& all_rounds) {
  double tables = 0;
  double hash = 0;
  double index = 0;
  const auto builder = std::make_unique<HuffmanBuilder>();
  const auto dc = std::make_unique<DcTable[]>(kJpegTables);
  const auto ac = std::make_unique<AcTable[]>(kJpegTables);
  JpegFile file;
  uint64_t all = 0;  // printed nowhere, and asked for, so that nothing is left out
  for (const Picture& picture : pictures) {
    read_jpeg_file(picture.bytes.data(), picture.bytes.size(), file);
    double begun = cpu_seconds();
    for (size_t t = 0; t < kJpegTables && !file.progressive; ++t) {
      if (file.dc[t].lengths != nullptr) builder->make(file.dc[t], dc[t]);
      if (file.ac[t].lengths != nullptr) builder->make(file.ac[t], ac[t]);
    }
    tables += cpu_seconds() - begun;
    begun = cpu_seconds();
    all ^= xxh3(picture.bytes.data(), picture.bytes.size());
    hash += cpu_seconds() - begun;
    begun = cpu_seconds();
    all ^= make_seek_index(picture.bytes.data(), picture.bytes.size()).size();
    index += cpu_seconds() - begun;
  }
  if (all == 0) std::fprintf(stderr, "the hashes of all pictures cancel out\n");
  all_rounds.tables.push_back(tables);
  all_rounds.hash.push_back(hash);
  all_rounds.index.push_back(index);
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

void print_spread(const char* name, const std::vector<double>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  std::printf("%s: {\"median\": %.6g, \"min\": %.6g, \"max\": %.6g}", quoted(name).c_str(),
              median(values), *least, *most);
}

void print_job(const char* name, const std::vector<Contender>& contenders, const Rounds& rounds,
               const std::map<std::string, size_t>& handed_over, size_t pictures) {
  std::printf("    %s: {\n      \"handed_over\": {", quoted(name).c_str());
  const char* comma = "";
  for (const auto& [reason, count] : handed_over) {
    std::printf("%s%s: %zu", comma, quoted(reason).c_str(), count);
    comma = ", ";
  }
  std::printf("},\n      \"contenders\": {\n");
  for (size_t i = 0; i < contenders.size(); ++i) {
    std::vector<double> milliseconds;
    std::vector<double> ratios;
    for (const std::vector<double>& round : rounds) {
      milliseconds.push_back(round[i] * 1e3 / static_cast<double>(pictures));
      ratios.push_back(round[0] / round[i]);
    }
    std::printf("        %s: {", quoted(contenders[i].name).c_str());
    print_spread("ms_per_picture", milliseconds);
    if (i > 0) std::printf(", ");
    if (i > 0) print_spread("ratio", ratios);
    std::printf("}%s\n", i + 1 < contenders.size() ? "," : "");
  }
  std::printf("      }\n    }");
}

void run(const std::string& folder, size_t rounds) {
  const int cpu = pin();
  std::vector<Contender> contenders = make_contenders();
  const std::vector<Picture> pictures = read_pictures(folder, contenders[0]);
  double pixels_of_all = 0;
  size_t bytes = 0;
  size_t index_bytes = 0;
  for (const Picture& picture : pictures) {
    pixels_of_all += static_cast<double>(picture.whole.width) * picture.whole.height;
    bytes += picture.bytes.size();
    index_bytes += picture.index.size();
  }
  SmallCosts costs;
  for (size_t round = 0; round < rounds; ++round) measure_small_costs(pictures, costs);
  const JpegLibrary library = describe_jpeg_library();
  std::printf("{\n  \"libjpeg_turbo\": {\"compiled\": %s, \"loaded\": %s},\n",
              quoted(library.compiled_version).c_str(), quoted(library.runtime_text).c_str());
  std::printf("  \"avx512vbmi\": %s,\n  \"cpu\": %d,\n", has_vbmi() ? "true" : "false", cpu);
  std::printf("  \"rounds\": %zu,\n  \"pictures\": %zu,\n  \"megapixels\": %.6f,\n", rounds,
              pictures.size(), pixels_of_all * 1e-6);
  std::printf("  \"bytes\": %zu,\n  \"index_bytes\": %zu,\n", bytes, index_bytes);
  const double each = 1e6 / static_cast<double>(pictures.size());
  std::printf("  \"us_per_picture\": {\"tables\": %.6g, \"hash\": %.6g, \"make_index\": %.6g},\n",
              median(costs.tables) * each, median(costs.hash) * each, median(costs.index) * each);
  std::printf("  \"jobs\": {\n");
  struct Job {
    const char* name;
    JpegRegion Picture::* region;
  };
  const Job jobs[] = {{"RandomResizedCrop", &Picture::box}, {"whole", &Picture::whole}};
  for (const Job& job : jobs) {
    const auto handed_over = check(contenders, pictures, job.region);
    const Rounds seconds = measure(contenders, pictures, job.region, rounds);
    print_job(job.name, contenders, seconds, handed_over, pictures.size());
    std::printf("%s\n", &job == &jobs[0] ? "," : "");
  }
  std::printf("  }\n}\n");
}

JpegRegion random_region(const JpegRegion& whole, std::mt19937_64& random) {
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  JpegRegion region;
  region.width = 1 + below(whole.width);
  region.height = 1 + below(whole.height);
  region.left = below(whole.width - region.width + 1);
  region.top = below(whole.height - region.height + 1);
  return region;
}

void compare(const std::string& folder, size_t regions) {
  std::vector<Contender> contenders = make_contenders();
  const std::vector<Picture> pictures = read_pictures(folder, contenders[0]);
  std::mt19937_64 random(pictures.size());
  size_t bytes = 0;
  size_t ours = 0;
  for (const Picture& picture : pictures) {
    for (size_t r = 0; r < regions; ++r) {
      bytes += expect_same(contenders, picture, random_region(picture.whole, random));
      if (contenders[1].decoder->made_by() == JpegMaker::kOwn) ++ours;
    }
  }
  std::printf(
      "{\"pictures\": %zu, \"regions\": %zu, \"by_our_own_decoder\": %zu, \"bytes\": %zu}\n",
      pictures.size(), pictures.size() * regions, ours, bytes);
}

}  // namespace
}  // namespace fastloader

int main(int argc, char** argv) {
  const bool check = argc == 4 && std::string(argv[2]) == "check";
  const size_t count = argc > 2 ? std::strtoull(argv[argc - 1], nullptr, 10) : 9;
  if (argc < 2 || count == 0 || (argc > 3 && !check)) {
    std::fprintf(stderr, "jpeg_decode FOLDER [ROUNDS], or jpeg_decode FOLDER check REGIONS\n");
    return 2;
  }
  try {
    check ? fastloader::compare(argv[1], count) : fastloader::run(argv[1], count);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "jpeg_decode: %s\n", error.what());
    return 1;
  }
  return 0;
}

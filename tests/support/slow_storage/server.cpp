// A file system that shows a folder, read-only, as a network file system might: late, and with
// faults. __init__.py says how it is controlled. It speaks the kernel's protocol (linux/fuse.h) by
// itself, so that nothing has to be installed; mounting takes the right to do so.
//
//   server FOLDER MOUNTPOINT
//
// Reads commands from its input, a line each, and writes a line for each. At the end of its input
// it unmounts. The kernel keeps neither names nor attributes, so that each look comes here; it
// keeps pages while a file is open, as any file system must whose files are mapped ("forget" makes
// it drop all).

#include <dirent.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLargestRead = size_t{1} << 20;
constexpr size_t kBuffer = kLargestRead + 4096;
constexpr size_t kServers = 3;  // threads: they wait for nothing but the folder's own disk

struct Request {
  Clock::time_point due;
  std::vector<char> bytes;

  const fuse_in_header& head() const {
    return *reinterpret_cast<const fuse_in_header*>(bytes.data());
  }
  template <typename In>
  const In& in() const {
    return *reinterpret_cast<const In*>(bytes.data() + sizeof(fuse_in_header));
  }
  const char* name() const { return bytes.data() + sizeof(fuse_in_header); }
};

/// What happens to requests of one kind.
struct Fault {
  std::string operation;  // "any": each
  int error = 0;          // 0: none
  size_t most = 0;        // bytes that a read gives; 0: all
  uint64_t from = 0;      // a read of anything behind this byte
  int64_t count = -1;     // so many requests; -1: all
  std::string name;       // part of the path
};

struct Node {
  std::string path;
  uint64_t lookups = 0;
};

const char* operation_of(uint32_t opcode) {
  switch (opcode) {
    case FUSE_LOOKUP:
      return "lookup";
    case FUSE_GETATTR:
      return "getattr";
    case FUSE_OPEN:
      return "open";
    case FUSE_READ:
      return "read";
    case FUSE_OPENDIR:
      return "opendir";
    case FUSE_READDIR:
      return "readdir";
    case FUSE_STATFS:
      return "statfs";
    default:
      return nullptr;  // nobody waits for it, or it is answered at once
  }
}

int number_of(const std::string& error) {
  if (error == "EIO") return EIO;
  if (error == "ESTALE") return ESTALE;
  if (error == "ETIMEDOUT") return ETIMEDOUT;
  if (error == "EACCES") return EACCES;
  if (error == "ENOENT") return ENOENT;
  return 0;
}

class Storage {
 public:
  Storage(int device, const std::string& folder) : device_(device), folder_(folder) {
    nodes_[FUSE_ROOT_ID] = Node{"", 1};
  }

  /// Takes requests until the file system is unmounted.
  void take_requests() {
    for (;;) {
      auto request = std::make_unique<Request>();
      request->bytes.resize(kBuffer);
      const ssize_t got = read(device_, request->bytes.data(), kBuffer);
      if (got < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN)) continue;
      if (got < 0) break;
      request->bytes.resize(static_cast<size_t>(got));
      const char* const operation = operation_of(request->head().opcode);
      if (operation == nullptr) {
        serve(*request);
        continue;
      }
      const Clock::duration late = note(*request, operation);
      if (late == Clock::duration::zero()) {
        serve(*request);
        continue;
      }
      request->due = Clock::now() + late;
      const std::lock_guard<std::mutex> lock(mutex_);
      waiting_.push_back(std::move(request));
      std::push_heap(waiting_.begin(), waiting_.end(), later);
      work_.notify_one();
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    over_ = true;
    work_.notify_all();
  }

  /// Serves what is due.
  void serve_late() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      if (waiting_.empty()) {
        if (over_) return;
        work_.wait(lock);
        continue;
      }
      const Clock::time_point due = waiting_.front()->due;
      if (due > Clock::now()) {
        work_.wait_until(lock, due);
        continue;
      }
      std::pop_heap(waiting_.begin(), waiting_.end(), later);
      const std::unique_ptr<Request> request = std::move(waiting_.back());
      waiting_.pop_back();
      lock.unlock();
      serve(*request);
      lock.lock();
    }
  }

  std::string command(const std::string& line) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    std::unique_lock<std::mutex> lock(mutex_);
    if (what == "latency") {  // seconds of each request, and of every nth one
      double each = 0, spike = 0;
      words >> each >> spike >> every_;
      latency_ = seconds(each);
      spike_ = seconds(spike);
    } else if (what == "fault") {
      Fault fault;
      std::string error;
      words >> fault.operation >> error >> fault.most >> fault.from >> fault.count;
      words >> std::ws;
      std::getline(words, fault.name);
      fault.error = number_of(error);
      faults_.push_back(fault);
    } else if (what == "mend") {
      faults_.clear();
    } else if (what == "log") {
      log_.clear();
      logs_ = true;
    } else if (what == "calls") {
      return calls_locked();
    } else if (what == "reset") {
      bytes_ = 0;
      peak_ = 0;
      counts_.clear();
      log_.clear();
    } else if (what == "counts") {
      return counts_locked();
    } else if (what == "forget") {
      std::vector<uint64_t> known;
      for (const auto& [id, node] : nodes_) known.push_back(id);
      lock.unlock();
      for (const uint64_t id : known) forget_pages(id);
    } else {
      return "\"unknown: " + what + "\"";
    }
    return "null";
  }

 private:
  static bool later(const std::unique_ptr<Request>& a, const std::unique_ptr<Request>& b) {
    return a->due > b->due;
  }

  static Clock::duration seconds(double number) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(number));
  }

  /// Counts a request, and returns how late it is to be answered.
  Clock::duration note(const Request& request, const char* operation) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const fuse_in_header& head = request.head();
    ++counts_[operation];
    if (logs_) {
      std::string path = nodes_.count(head.nodeid) ? nodes_[head.nodeid].path : std::string();
      if (head.opcode == FUSE_LOOKUP) path += std::string("/") + request.name();
      log_.push_back({head.pid, operation, std::move(path)});
    }
    peak_ = std::max(peak_, waiting_.size() + 1);
    if (every_ > 0 && ++asked_ % every_ == 0) return spike_;
    return latency_;
  }

  std::string counts_locked() {
    std::ostringstream out;
    out << "{\"bytes\": " << bytes_ << ", \"peak\": " << peak_ << ", \"calls\": {";
    const char* between = "";
    for (const auto& [operation, count] : counts_) {
      out << between << '"' << operation << "\": " << count;
      between = ", ";
    }
    out << "}}";
    return out.str();
  }

  std::string calls_locked() {
    std::ostringstream out;
    out << '[';
    const char* between = "";
    for (const Call& call : log_) {
      out << between << '[' << call.thread << ", \"" << call.operation << "\", \"";
      for (const char letter : call.path) {
        if (letter == '"' || letter == '\\') out << '\\';
        out << letter;
      }
      out << "\"]";
      between = ", ";
    }
    out << ']';
    return out.str();
  }

  void forget_pages(uint64_t id) {
    fuse_notify_inval_inode_out what{};
    what.ino = id;
    fuse_out_header head{};
    head.error = FUSE_NOTIFY_INVAL_INODE;
    send(head, &what, sizeof what);
  }

  // --- answers
  // ------------------------------------------------------------------------------------

  void send(fuse_out_header head, const void* data, size_t size) {
    head.len = static_cast<uint32_t>(sizeof head + size);
    iovec parts[2] = {{&head, sizeof head}, {const_cast<void*>(data), size}};
    // ENOENT: nobody waits for it any more.
    if (writev(device_, parts, 2) < 0 && errno != ENOENT && errno != ENODEV) {
      std::perror("slow storage: the kernel takes no answer");
    }
  }

  void answer(const Request& request, const void* data, size_t size) {
    fuse_out_header head{};
    head.unique = request.head().unique;
    send(head, data, size);
  }

  template <typename Out>
  void answer(const Request& request, const Out& out) {
    answer(request, &out, sizeof out);
  }

  void refuse(const Request& request, int error) {
    fuse_out_header head{};
    head.unique = request.head().unique;
    head.error = -error;
    send(head, nullptr, 0);
  }

  /// The path of a node below the folder; its own number is there no more: ESTALE.
  std::string path_of(uint64_t id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = nodes_.find(id);
    return found == nodes_.end() ? std::string() : folder_ + found->second.path;
  }

  /// What is to happen to this request besides what it asks for.
  Fault fault_of(const Request& request, const char* operation) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (faults_.empty()) return {};
    std::string path =
        nodes_.count(request.head().nodeid) ? nodes_[request.head().nodeid].path : std::string();
    if (request.head().opcode == FUSE_LOOKUP) path += std::string("/") + request.name();
    for (Fault& fault : faults_) {
      if (fault.operation != "any" && fault.operation != operation) continue;
      if (fault.count == 0 || path.find(fault.name) == std::string::npos) continue;
      if (request.head().opcode == FUSE_READ) {
        const auto& in = request.in<fuse_read_in>();
        if (in.offset + in.size <= fault.from) continue;
      }
      if (fault.count > 0) --fault.count;
      return fault;
    }
    return {};
  }

  bool gives_less(uint64_t id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::any_of(faults_.begin(), faults_.end(), [&](const Fault& fault) {
      return fault.most > 0 && nodes_[id].path.find(fault.name) != std::string::npos;
    });
  }

  static uint64_t node_of(const struct stat& status) {
    return status.st_ino == FUSE_ROOT_ID ? ~uint64_t{0} : status.st_ino;
  }

  static fuse_attr attributes(const struct stat& status) {
    fuse_attr out{};
    out.ino = status.st_ino;
    out.size = static_cast<uint64_t>(status.st_size);
    out.blocks = static_cast<uint64_t>(status.st_blocks);
    out.atime = static_cast<uint64_t>(status.st_atim.tv_sec);
    out.mtime = static_cast<uint64_t>(status.st_mtim.tv_sec);
    out.ctime = static_cast<uint64_t>(status.st_ctim.tv_sec);
    out.atimensec = static_cast<uint32_t>(status.st_atim.tv_nsec);
    out.mtimensec = static_cast<uint32_t>(status.st_mtim.tv_nsec);
    out.ctimensec = static_cast<uint32_t>(status.st_ctim.tv_nsec);
    out.mode = status.st_mode;
    out.nlink = static_cast<uint32_t>(status.st_nlink);
    out.uid = status.st_uid;
    out.gid = status.st_gid;
    out.blksize = 4096;
    return out;
  }

  void serve(const Request& request) {
    if (const char* const operation = operation_of(request.head().opcode)) {
      const Fault fault = fault_of(request, operation);
      if (fault.error != 0) return refuse(request, fault.error);
      if (request.head().opcode == FUSE_READ) return read_file(request, fault.most);
    }
    switch (request.head().opcode) {
      case FUSE_INIT:
        return begin(request);
      case FUSE_LOOKUP:
        return look_up(request);
      case FUSE_FORGET:
        return forget(request.head().nodeid, request.in<fuse_forget_in>().nlookup);
      case FUSE_BATCH_FORGET:
        return forget_many(request);
      case FUSE_GETATTR:
        return get_attributes(request);
      case FUSE_READLINK:
        return read_link(request);
      case FUSE_OPEN:
      case FUSE_OPENDIR:
        return open_file(request);
      case FUSE_READDIR:
        return read_folder(request);
      case FUSE_RELEASE:
      case FUSE_RELEASEDIR:
        close(static_cast<int>(request.in<fuse_release_in>().fh));
        return answer(request, nullptr, 0);
      case FUSE_FLUSH:
        return answer(request, nullptr, 0);
      case FUSE_STATFS:
        return status_of_all(request);
      case FUSE_INTERRUPT:
        return;  // the answer comes soon enough
      case FUSE_DESTROY:
        return answer(request, nullptr, 0);
      case FUSE_WRITE:
      case FUSE_CREATE:
      case FUSE_MKDIR:
      case FUSE_UNLINK:
      case FUSE_RENAME:
      case FUSE_SETATTR:
        return refuse(request, EROFS);
      default:
        return refuse(request, ENOSYS);
    }
  }

  void begin(const Request& request) {
    const auto& in = request.in<fuse_init_in>();
    fuse_init_out out{};
    out.major = FUSE_KERNEL_VERSION;
    out.minor = FUSE_KERNEL_MINOR_VERSION;
    out.max_readahead = in.max_readahead;
    out.flags = in.flags & (FUSE_ASYNC_READ | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES);
    // As many requests of reading ahead as anybody makes: a network file system limits them late.
    out.max_background = 4096;
    out.congestion_threshold = 4096;
    out.max_write = 4096;
    out.max_pages = kLargestRead / 4096;
    out.time_gran = 1;
    answer(request, out);
  }

  void look_up(const Request& request) {
    const uint64_t parent = request.head().nodeid;
    std::string path;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      path = nodes_[parent].path + "/" + request.name();
    }
    struct stat status;
    if (lstat((folder_ + path).c_str(), &status) != 0) return refuse(request, errno);
    fuse_entry_out out{};
    out.nodeid = node_of(status);
    out.attr = attributes(status);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      Node& node = nodes_[out.nodeid];
      node.path = path;
      ++node.lookups;
    }
    answer(request, out);
  }

  void forget(uint64_t id, uint64_t lookups) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = nodes_.find(id);
    if (found == nodes_.end() || id == FUSE_ROOT_ID) return;
    found->second.lookups -= std::min(lookups, found->second.lookups);
    if (found->second.lookups == 0) nodes_.erase(found);
  }

  void forget_many(const Request& request) {
    const auto& in = request.in<fuse_batch_forget_in>();
    const auto* const each = reinterpret_cast<const fuse_forget_one*>(&in + 1);
    for (uint32_t i = 0; i < in.count; ++i) forget(each[i].nodeid, each[i].nlookup);
  }

  void get_attributes(const Request& request) {
    const auto& in = request.in<fuse_getattr_in>();
    struct stat status;
    if ((in.getattr_flags & FUSE_GETATTR_FH) != 0) {
      if (fstat(static_cast<int>(in.fh), &status) != 0) return refuse(request, errno);
    } else {
      const uint64_t id = request.head().nodeid;
      if (lstat(path_of(id).c_str(), &status) != 0) return refuse(request, ESTALE);
      // Another file has its name by now: as with NFS, what was known of it is stale.
      if (id != FUSE_ROOT_ID && node_of(status) != id) return refuse(request, ESTALE);
    }
    fuse_attr_out out{};
    out.attr = attributes(status);
    if (request.head().nodeid == FUSE_ROOT_ID) out.attr.ino = FUSE_ROOT_ID;
    answer(request, out);
  }

  void read_link(const Request& request) {
    char target[4096];
    const ssize_t size = readlink(path_of(request.head().nodeid).c_str(), target, sizeof target);
    if (size < 0) return refuse(request, errno);
    answer(request, target, static_cast<size_t>(size));
  }

  void open_file(const Request& request) {
    const bool folder = request.head().opcode == FUSE_OPENDIR;
    if ((request.in<fuse_open_in>().flags & O_ACCMODE) != O_RDONLY) return refuse(request, EROFS);
    const int flags = O_RDONLY | O_CLOEXEC | (folder ? O_DIRECTORY : 0);
    const int opened = open(path_of(request.head().nodeid).c_str(), flags);
    if (opened < 0) return refuse(request, errno == ENOENT ? ESTALE : errno);
    struct stat status;
    const uint64_t id = request.head().nodeid;
    if (fstat(opened, &status) != 0 || (id != FUSE_ROOT_ID && node_of(status) != id)) {
      close(opened);
      return refuse(request, ESTALE);
    }
    fuse_open_out out{};
    out.fh = static_cast<uint64_t>(opened);
    // The kernel would fill up what lacks, in pages of its own: who reads gets zeros.
    if (gives_less(id)) out.open_flags = FOPEN_DIRECT_IO;
    answer(request, out);
  }

  void read_file(const Request& request, size_t most) {
    const auto& in = request.in<fuse_read_in>();
    thread_local std::vector<char> bytes(kLargestRead);
    size_t wanted = std::min<size_t>(in.size, bytes.size());
    if (most > 0) wanted = std::min(wanted, most);
    const ssize_t got =
        pread(static_cast<int>(in.fh), bytes.data(), wanted, static_cast<off_t>(in.offset));
    if (got < 0) return refuse(request, errno);
    bytes_ += static_cast<uint64_t>(got);
    answer(request, bytes.data(), static_cast<size_t>(got));
  }

  void read_folder(const Request& request) {
    const auto& in = request.in<fuse_read_in>();
    const int again = openat(static_cast<int>(in.fh), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* const folder = again < 0 ? nullptr : fdopendir(again);
    if (folder == nullptr) return refuse(request, errno);
    std::vector<char> out;
    uint64_t number = 0;
    while (const dirent* const entry = readdir(folder)) {
      if (number++ < in.offset) continue;
      const size_t length = std::strlen(entry->d_name);
      const size_t room = FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + length);
      if (out.size() + room > in.size) break;
      fuse_dirent one{};
      one.ino = entry->d_ino;
      one.off = number;
      one.namelen = static_cast<uint32_t>(length);
      one.type = entry->d_type;
      const size_t at = out.size();
      out.resize(at + room);
      std::memcpy(out.data() + at, &one, FUSE_NAME_OFFSET);
      std::memcpy(out.data() + at + FUSE_NAME_OFFSET, entry->d_name, length);
    }
    closedir(folder);
    answer(request, out.data(), out.size());
  }

  void status_of_all(const Request& request) {
    struct statfs status;
    if (statfs(folder_.c_str(), &status) != 0) return refuse(request, errno);
    fuse_statfs_out out{};
    out.st.blocks = status.f_blocks;
    out.st.bfree = status.f_bfree;
    out.st.bavail = status.f_bavail;
    out.st.files = status.f_files;
    out.st.ffree = status.f_ffree;
    out.st.bsize = static_cast<uint32_t>(status.f_bsize);
    out.st.namelen = static_cast<uint32_t>(status.f_namelen);
    answer(request, out);
  }

  struct Call {
    uint32_t thread;  // its number, as gettid() has it
    std::string operation;
    std::string path;
  };

  const int device_;
  const std::string folder_;
  std::atomic<uint64_t> bytes_{0};
  std::mutex mutex_;  // guards what follows
  std::condition_variable work_;
  std::vector<std::unique_ptr<Request>> waiting_;  // a heap: the one that is due first at the top
  bool over_ = false;
  Clock::duration latency_{};
  Clock::duration spike_{};
  uint64_t every_ = 0;
  uint64_t asked_ = 0;
  size_t peak_ = 0;  // requests under way at a time, at most
  std::map<std::string, uint64_t> counts_;
  std::map<uint64_t, Node> nodes_;
  std::vector<Fault> faults_;
  bool logs_ = false;
  std::vector<Call> log_;
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::fprintf(stderr, "usage: server FOLDER MOUNTPOINT\n");
    return 2;
  }
  const char* const place = arguments[2];
  const int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (device < 0) {
    std::printf("cannot open /dev/fuse: %s\n", std::strerror(errno));
    return 1;
  }
  const std::string options = "fd=" + std::to_string(device) +
                              ",rootmode=40000,user_id=" + std::to_string(getuid()) +
                              ",group_id=" + std::to_string(getgid()) +
                              ",allow_other,max_read=" + std::to_string(kLargestRead);
  if (mount("slow_storage", place, "fuse.slow_storage", MS_NOSUID | MS_NODEV | MS_RDONLY,
            options.c_str()) != 0) {
    std::printf("may not mount a file system: %s\n", std::strerror(errno));
    return 1;
  }
  Storage storage(device, arguments[1]);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kServers; ++i) {
    threads.emplace_back([&] { storage.take_requests(); });
    threads.emplace_back([&] { storage.serve_late(); });
  }
  std::printf("ready\n");
  std::fflush(stdout);
  std::string line;
  while (std::getline(std::cin, line)) std::cout << storage.command(line) << std::endl;
  umount2(place, MNT_DETACH);
  // Threads may wait for a process that has files open there still.
  std::_Exit(0);
}

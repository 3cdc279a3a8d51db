#include "transport/shm/shm_segment.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <new>
#include <optional>
#include <sstream>

#include "base/checksum.h"
#include "base/wire.h"

namespace selmcast::shm {
namespace {

constexpr std::uint32_t kAddressMagic = 0x4D48'5353;
constexpr std::uint16_t kAddressVersion = 1;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string text_of(int code) {
  return std::strerror(code);
}

int open_pidfd(std::uint32_t pid) noexcept {
  return static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0U));
}

/// Field 22 of /proc/PID/stat (proc(5)); nothing when there is no such process.
std::optional<std::uint64_t> start_time_of(std::uint32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // The name, in parentheses, may hold anything; the fields after it are plain.
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  std::uint64_t ticks = 0;
  if (!(fields >> ticks)) return std::nullopt;
  return ticks;
}

std::uint64_t boot_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return content_hash(0, std::as_bytes(std::span(id)));
}

std::uint64_t pid_namespace() noexcept {
  struct stat info {};
  return ::stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

Mapping map_fd(int fd, std::size_t offset, std::size_t bytes, int flags,
               int protection = PROT_READ | PROT_WRITE) noexcept {
  void* at = ::mmap(nullptr, bytes, protection, MAP_SHARED | flags, fd, static_cast<off_t>(offset));
  if (at == MAP_FAILED) return {};
  ::madvise(at, bytes, MADV_DONTFORK);
  return {at, bytes};
}

RingControl* control_at(std::byte* segment, std::uint32_t sender) noexcept {
  return std::launder(reinterpret_cast<RingControl*>(segment + controls_offset())) + sender;
}

Error mismatch(const SegmentAddress& peer, const std::string& what) {
  return bad_input("shm: rank " + std::to_string(peer.rank) + " " + what);
}

/// What two addresses alone tell.
Result<void> check_addresses(const SegmentAddress& own, const SegmentAddress& peer) {
  if (peer.boot != own.boot) {
    return mismatch(peer, "runs on another host; shm joins ranks of one host, use uring");
  }
  if (peer.pids != own.pids) {
    return mismatch(peer, "runs in another PID namespace; give the workers one, or use uring");
  }
  if (peer.job != own.job) {
    return mismatch(peer, "belongs to job " + std::to_string(peer.job) + ", this rank to job " +
                              std::to_string(own.job));
  }
  if (peer.world != own.world) {
    return mismatch(peer, "says the job has " + std::to_string(peer.world) + " ranks, rank " +
                              std::to_string(own.rank) + " says " + std::to_string(own.world));
  }
  if (peer.rank >= peer.world) return mismatch(peer, "is out of range");
  const bool power = (peer.ring_bytes & (peer.ring_bytes - 1)) == 0;
  if (!power || peer.ring_bytes < kRingBytesMin || peer.ring_bytes > kRingBytesMax) {
    return mismatch(peer, "has rings of " + std::to_string(peer.ring_bytes) + " bytes");
  }
  return {};
}

Error gone(const SegmentAddress& peer, const std::string& why) {
  return failed("shm: rank " + std::to_string(peer.rank) + " (process " + std::to_string(peer.pid) +
                ") is gone: " + why);
}

std::string path_of(std::uint32_t pid, std::uint64_t fd) {
  return "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
}

bool sealed_with_size(int fd, std::size_t bytes) noexcept {
  struct stat info {};
  if (::fstat(fd, &info) != 0 || info.st_size < 0) return false;
  const int seals = ::fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 &&
         static_cast<std::size_t>(info.st_size) == bytes;
}

bool describes(const SegmentHeader& header, const SegmentAddress& peer) noexcept {
  return header.magic == kSegmentMagic && header.version == kSegmentVersion &&
         header.nonce == peer.nonce && header.job == peer.job && header.rank == peer.rank &&
         header.world == peer.world && header.ring_bytes == peer.ring_bytes;
}

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : at_(std::exchange(other.at_, nullptr)), bytes_(other.bytes_) {}
Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(at_, other.at_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
Mapping::~Mapping() {
  if (at_ != nullptr) ::munmap(at_, bytes_);
}

PeerAddress encode_address(const SegmentAddress& address) {
  WireWriter writer;
  writer.put(kAddressMagic).put(kAddressVersion).put(std::uint16_t{0});
  writer.put(address.nonce).put(address.start_time).put(address.job);
  writer.put(address.boot).put(address.pids).put(address.pid).put(address.fd);
  writer.put(address.rank).put(address.world).put(address.ring_bytes);
  const Bytes bytes = std::move(writer).take();
  PeerAddress out;
  SELMCAST_CHECK(bytes.size() <= out.bytes.size(), "the address fits");
  std::memcpy(out.bytes.data(), bytes.data(), bytes.size());
  out.size = static_cast<std::uint32_t>(bytes.size());
  return out;
}

Result<SegmentAddress> decode_address(const PeerAddress& address) {
  const Error refusal = bad_input(
      "shm: the peer's address is not one of this backend and version; "
      "all ranks must use --transport shm and the same release");
  if (address.size > address.bytes.size()) return refusal;
  WireReader in(address.view());
  const auto magic = in.get<std::uint32_t>();
  const auto version = in.get<std::uint16_t>();
  in.get<std::uint16_t>();
  if (!magic || *magic != kAddressMagic || !version || *version != kAddressVersion) return refusal;
  SegmentAddress out;
  for (auto* field : {&out.nonce, &out.start_time, &out.job, &out.boot, &out.pids}) {
    *field = in.get<std::uint64_t>().value_or(0);
  }
  for (auto* field : {&out.pid, &out.fd, &out.rank, &out.world, &out.ring_bytes}) {
    *field = in.get<std::uint32_t>().value_or(0);
  }
  if (!in.finished()) return refusal;
  return out;
}

SegmentHeader& OwnSegment::header() const noexcept {
  return *std::launder(reinterpret_cast<SegmentHeader*>(memory.data()));
}
RingControl& OwnSegment::control(std::uint32_t sender) const noexcept {
  return *control_at(memory.data(), sender);
}
std::byte* OwnSegment::ring(std::uint32_t sender) const noexcept {
  return memory.data() + ring_offset(address.world, address.ring_bytes, sender);
}
SegmentHeader& PeerSegment::header() const noexcept {
  return *std::launder(reinterpret_cast<SegmentHeader*>(shared.data()));
}
RingControl& PeerSegment::control(std::uint32_t sender) const noexcept {
  return *control_at(shared.data(), sender);
}

Result<OwnSegment> create_segment(std::uint64_t job, Rank rank, std::uint32_t world,
                                  std::uint32_t ring_bytes) {
  OwnSegment out;
  const auto own_pid = static_cast<std::uint32_t>(::getpid());
  if (!UniqueFd(open_pidfd(own_pid))) {
    return unavailable("shm: pidfd_open failed: " + text_of(errno) +
                       "; Linux 5.3 or newer is needed, or a sandbox forbids it");
  }
  const auto start_time = start_time_of(own_pid);
  if (!start_time) return unavailable("shm: /proc/self/stat is not readable; mount /proc");
  std::uint64_t nonce = 0;
  while (nonce == 0) {  // 0 means "no owner" in RingControl.
    if (::getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) {
      return unavailable("shm: no random number: " + text_of(errno));
    }
  }
  out.address = {nonce,   *start_time, job,  boot_identity(), pid_namespace(),
                 own_pid, 0,           rank, world,           ring_bytes};

  const std::size_t bytes = segment_bytes(world, ring_bytes);
  out.fd = UniqueFd(::memfd_create("selmcast-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!out.fd) return unavailable("shm: memfd_create failed: " + text_of(errno));
  out.address.fd = static_cast<std::uint32_t>(out.fd.get());
  // Sealed against shrinking, or a peer's truncation would end this process by SIGBUS.
  if (::ftruncate(out.fd.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(out.fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return unavailable("shm: a segment of " + std::to_string(bytes) +
                       " bytes cannot be made: " + text_of(errno));
  }
  out.memory = map_fd(out.fd.get(), 0, bytes, 0);
  if (!out.memory) {
    return unavailable("shm: " + std::to_string(bytes) + " bytes cannot be mapped: " +
                       text_of(errno) + "; raise the limit of address space (ulimit -v)");
  }
  auto* header = ::new (out.memory.data()) SegmentHeader;
  header->magic = kSegmentMagic;
  header->nonce = nonce;
  header->job = job;
  header->version = kSegmentVersion;
  header->world = world;
  header->rank = rank;
  header->ring_bytes = ring_bytes;
  for (std::uint32_t sender = 0; sender < world; ++sender) {
    ::new (out.memory.data() + controls_offset() + sender * sizeof(RingControl)) RingControl;
  }
  return out;
}

Result<PeerSegment> map_peer(const SegmentAddress& own, const SegmentAddress& peer) {
  if (auto ok = check_addresses(own, peer); !ok) return ok.error();
  PeerSegment out;
  if (peer.pid != own.pid) {
    // First hold the process, then make sure that it is the one meant: from then on the pid cannot
    // be reused unnoticed.
    out.pidfd = UniqueFd(open_pidfd(peer.pid));
    if (!out.pidfd) return gone(peer, text_of(errno));
  }
  if (start_time_of(peer.pid) != peer.start_time) return gone(peer, "its process ended");
  const std::string path = path_of(peer.pid, peer.fd);
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) {
    if (errno == EACCES || errno == EPERM) {
      return unavailable("shm: rank " + std::to_string(peer.rank) + ": " + path +
                         " is not permitted; run all workers as the same user");
    }
    return gone(peer, "its segment cannot be opened: " + text_of(errno));
  }
  const std::size_t bytes = segment_bytes(peer.world, peer.ring_bytes);
  if (!sealed_with_size(fd.get(), bytes)) return gone(peer, "its segment is not the one announced");
  out.shared = map_fd(fd.get(), 0, ring_offset(peer.world, peer.ring_bytes, 0), 0);
  // Populated: the sender is the first to touch these pages, and should not do so on the data path.
  out.ring = map_fd(fd.get(), ring_offset(peer.world, peer.ring_bytes, own.rank), peer.ring_bytes,
                    MAP_POPULATE);
  if (!out.shared || !out.ring) {
    return unavailable("shm: the segment of rank " + std::to_string(peer.rank) +
                       " cannot be mapped: " + text_of(errno));
  }
  if (!describes(out.header(), peer)) return gone(peer, "its segment is another transport's");
  return out;
}

Mapping map_export(const SegmentAddress& peer, const Export& what) {
  const UniqueFd fd(::open(path_of(peer.pid, what.fd).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd || ::fstat(fd.get(), &info) != 0 || info.st_ino != what.inode) return {};
  if (!sealed_with_size(fd.get(), what.bytes)) return {};
  return map_fd(fd.get(), 0, what.bytes, MAP_POPULATE, PROT_READ);
}

}  // namespace selmcast::shm

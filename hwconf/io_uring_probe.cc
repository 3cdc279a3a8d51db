#if SELMCAST_HAVE_URING
#include <liburing.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/system_files.h"
#include "hwconf/machine.h"

namespace selmcast {
namespace {

constexpr unsigned kRingEntries = 4;
constexpr std::size_t kPageBytes = 4096;

struct RingCloser {
  void operator()(io_uring* ring) const noexcept { io_uring_queue_exit(ring); }
};
struct ProbeDeleter {
  void operator()(io_uring_probe* probe) const noexcept { io_uring_free_probe(probe); }
};

std::string refusal(int error) {
  const auto disabled = read_system_number("/proc/sys/kernel/io_uring_disabled").value_or(0);
  if (error == EPERM && disabled != 0) {
    return "kernel.io_uring_disabled is " + std::to_string(disabled) +
           "; run: sysctl -w kernel.io_uring_disabled=0";
  }
  if (error == EPERM || error == EACCES) {
    return "the kernel refuses it to this process, as containers often do; allow the io_uring "
           "system calls in the container's seccomp profile";
  }
  if (error == ENOSYS) return "this kernel was built without it; Linux 6.0 or later is needed";
  if (error == ENOMEM) return "RLIMIT_MEMLOCK is too small; raise it: ulimit -l 8192";
  return std::string("opening a ring failed: ") + std::strerror(error);
}

/// Registers a small ring of receive buffers and takes it away again (Linux 5.19).
bool takes_buffer_ring(io_uring& ring) {
  void* page =
      ::mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  io_uring_buf_reg registration{};
  registration.ring_addr = reinterpret_cast<std::uintptr_t>(page);
  registration.ring_entries = 8;
  registration.bgid = 1;
  const bool taken = io_uring_register_buf_ring(&ring, &registration, 0) == 0;
  if (taken) io_uring_unregister_buf_ring(&ring, registration.bgid);
  ::munmap(page, kPageBytes);
  return taken;
}

}  // namespace

IoUring probe_io_uring() {
  IoUring result;
  io_uring ring{};
  const int opened = io_uring_queue_init(kRingEntries, &ring, 0);
  if (opened < 0) {
    result.reason = refusal(-opened);
    return result;
  }
  const std::unique_ptr<io_uring, RingCloser> closer(&ring);
  const std::unique_ptr<io_uring_probe, ProbeDeleter> probe(io_uring_get_probe_ring(&ring));
  const auto supports = [&probe](int operation) {
    return probe != nullptr && io_uring_opcode_supported(probe.get(), operation) != 0;
  };
  result.send_zero_copy = supports(IORING_OP_SEND_ZC);
  result.buffer_ring = takes_buffer_ring(ring);
  // Multishot receive has no probe of its own; it came with the same release (6.0) as SEND_ZC.
  result.usable = result.buffer_ring && result.send_zero_copy && supports(IORING_OP_SENDMSG) &&
                  supports(IORING_OP_RECVMSG);
  if (!result.usable) {
    result.reason =
        "this kernel lacks multishot receive into a buffer ring; Linux 6.0 or later is needed";
  }
  return result;
}

}  // namespace selmcast

#else
#include "hwconf/machine.h"

namespace selmcast {

IoUring probe_io_uring() {
  IoUring out;
  out.reason =
      "this build was made without io_uring; to have it, install liburing and configure with "
      "-D SELMCAST_URING=ON";
  return out;
}

}  // namespace selmcast
#endif

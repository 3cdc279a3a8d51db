#include "transport/verbs/memory_monitor.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "transport/quiet_thread.h"

namespace selmcast::verbs {
namespace {

// The thread answers within microseconds unless the machine is far overloaded.
constexpr std::chrono::milliseconds kPatience{2000};
// How long a change under way is waited for: its event is read by the waiting thread itself.
constexpr std::chrono::milliseconds kSettle{100};

// EXACT_ADDRESS is of no use here but of Linux 5.18: before 5.15 the kernel lost count of changes
// that overlap.
constexpr std::uint64_t kFeatures = UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE |
                                    UFFD_FEATURE_EVENT_REMAP | UFFD_FEATURE_PAGEFAULT_FLAG_WP |
                                    UFFD_FEATURE_EXACT_ADDRESS;

void ring(const UniqueFd& bell) noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(bell.get(), &one, sizeof one);
}

// Shared memory can be emptied through its file, of which userfaultfd says nothing. Private huge
// pages have a file in name only.
bool private_anonymous(const char* line) noexcept {
  char sharing = 0;
  unsigned long long inode = 0;
  int path = 0;
  if (std::sscanf(line, "%*s %*3c%c %*s %*s %llu %n", &sharing, &inode, &path) < 2) return false;
  return sharing == 'p' &&
         (inode == 0 || (path > 0 && std::strncmp(line + path, "/anon_hugepage", 14) == 0));
}

bool all_private_anonymous(std::uintptr_t begin, std::uintptr_t end) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(std::fopen("/proc/self/maps", "re"),
                                                             &std::fclose);
  if (maps == nullptr) return false;
  std::array<char, 4608> line{};  // a path of PATH_MAX and what precedes it
  while (begin < end && std::fgets(line.data(), line.size(), maps.get()) != nullptr) {
    unsigned long long from = 0, to = 0;
    if (std::sscanf(line.data(), "%llx-%llx", &from, &to) != 2) return false;
    if (to <= begin) continue;
    if (from > begin || !private_anonymous(line.data())) return false;
    begin = to;
  }
  return begin >= end;
}

/// What to do about a refused call. No right is asked for: UFFD_USER_MODE_ONLY needs none, whatever
/// vm.unprivileged_userfaultfd says, so EPERM is a filter's.
std::string watch_remedy(const std::string& call, int error) {
  const std::string newer = "Linux 5.18 or later with CONFIG_USERFAULTFD is needed";
  if (error == EPERM || error == EACCES) {
    return "; a seccomp profile or security module forbids it (vm.unprivileged_userfaultfd does "
           "not matter): allow " +
           call + ", for containers by --security-opt seccomp=PROFILE";
  }
  if (error == ENOSYS) {
    return "; " + newer + ", and a seccomp profile that allows " + call;
  }
  if (error == EINVAL) return "; " + newer;
  if (error == EMFILE || error == ENFILE) return "; raise the limit of open files (ulimit -n)";
  return "; " + newer + ", and a seccomp profile that allows it";
}

}  // namespace

Result<std::shared_ptr<MemoryMonitor>> MemoryMonitor::shared() {
  static std::mutex making;
  static std::weak_ptr<MemoryMonitor> known;
  const std::lock_guard lock(making);
  if (auto monitor = known.lock(); monitor != nullptr && !monitor->in_child()) return monitor;
  auto made = start();
  if (made) known = *made;
  return made;
}

Result<std::shared_ptr<MemoryMonitor>> MemoryMonitor::start() {
  std::shared_ptr<MemoryMonitor> out(new MemoryMonitor);
  out->owner_ = ::getpid();
  out->page_ = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  out->bell_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  out->done_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!out->bell_ || !out->done_) return failed(std::string("eventfd: ") + std::strerror(errno));
  const int error = start_quiet(out->thread_, [self = out.get()] { self->run(); });
  if (error != 0) {
    return unavailable("memory cannot be watched: " + no_thread("for it", error));
  }
  if (!out->answered()) return failed("memory cannot be watched: the thread does not start");
  if (out->error_ == 0) return out;
  return unavailable(std::string("memory cannot be watched: ") + out->refused_ + ": " +
                     std::strerror(out->error_) + watch_remedy(out->refused_, out->error_));
}

MemoryMonitor::~MemoryMonitor() {
  if (!thread_.joinable()) return;
  if (in_child()) {  // the thread is the parent's
    thread_.detach();
    return;
  }
  if (error_ == 0) ask({.kind = Question::Kind::stop});
  thread_.join();
}

bool MemoryMonitor::in_child() const noexcept {
  return ::getpid() != owner_;
}

std::optional<MemoryMonitor::Watch> MemoryMonitor::ask(const Question& question) noexcept {
  if (in_child()) return std::nullopt;
  const std::lock_guard lock(asking_);
  if (lost_ && question.kind != Question::Kind::stop) return std::nullopt;
  question_ = question;
  ring(bell_);
  lost_ = !answered();
  return lost_ ? std::nullopt : reply_;
}

bool MemoryMonitor::answered() noexcept {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  for (auto left = kPatience; left.count() > 0; left = std::chrono::ceil<std::chrono::milliseconds>(
                                                    give_up - std::chrono::steady_clock::now())) {
    pollfd ready{done_.get(), POLLIN, 0};
    if (::poll(&ready, 1, static_cast<int>(left.count())) < 0) continue;  // a signal
    std::uint64_t times = 0;
    if (::read(done_.get(), &times, sizeof times) == sizeof times) return true;
  }
  return false;
}

std::optional<MemoryMonitor::Watch> MemoryMonitor::watch(std::span<const std::byte> memory) {
  const auto at = reinterpret_cast<std::uintptr_t>(memory.data());
  const std::uintptr_t begin = at / page_ * page_;
  const std::uintptr_t end = (at + memory.size() + page_ - 1) / page_ * page_;
  if (in_child() || begin >= end || !all_private_anonymous(begin, end)) return std::nullopt;
  return ask({.kind = Question::Kind::watch, .begin = begin, .end = end});
}

bool MemoryMonitor::intact(Watch watch) {
  return ask({.kind = Question::Kind::intact, .watch = watch}).has_value();
}

void MemoryMonitor::unwatch(Watch watch) noexcept {
  ask({.kind = Question::Kind::unwatch, .watch = watch});
}

bool MemoryMonitor::open() noexcept {
  const auto refuse = [this](const char* what) {
    error_ = errno;
    refused_ = what;
    return false;
  };
  const auto low = static_cast<unsigned>(std::min(bell_.get(), done_.get()));
  const auto high = static_cast<unsigned>(std::max(bell_.get(), done_.get()));
  if (::close_range(high + 1, ~0U, CLOSE_RANGE_UNSHARE) != 0) return refuse("close_range");
  if (low > 0) ::close_range(0, low - 1, 0);
  if (low + 1 < high) ::close_range(low + 1, high - 1, 0);
  // Faults of user mode only, of which there are none, is what every user may ask for.
  fd_ = static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY));
  if (fd_ < 0) return refuse("userfaultfd");
  uffdio_api api{.api = UFFD_API, .features = kFeatures, .ioctls = 0};
  if (::ioctl(fd_, UFFDIO_API, &api) != 0) return refuse("UFFDIO_API");
  void* at = ::mmap(nullptr, page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return refuse("mmap");
  probe_ = static_cast<std::byte*>(at);
  uffdio_register all{
      {reinterpret_cast<std::uintptr_t>(probe_), page_}, UFFDIO_REGISTER_MODE_WP, 0};
  if (::ioctl(fd_, UFFDIO_REGISTER, &all) != 0) return refuse("UFFDIO_REGISTER");
  if (!settle()) return refuse("UFFDIO_WRITEPROTECT");
  return true;
}

void MemoryMonitor::run() noexcept {
  const bool opened = open();
  ring(done_);
  while (opened) {
    std::array<pollfd, 2> ready{{{fd_, POLLIN, 0}, {bell_.get(), POLLIN, 0}}};
    if (::poll(ready.data(), ready.size(), -1) < 0) continue;
    if (ready[0].revents != 0) read_events();
    if (ready[1].revents != 0 && !take_question()) break;
  }
  // Closed before the thread ends, so that nobody waits for events that nobody reads; only then may
  // the watched probe be unmapped.
  if (fd_ >= 0) ::close(fd_);
  if (probe_ != nullptr) ::munmap(probe_, page_);
  if (opened) ring(done_);
}

bool MemoryMonitor::take_question() noexcept {
  std::uint64_t rung = 0;
  if (::read(bell_.get(), &rung, sizeof rung) != sizeof rung) return true;
  if (question_.kind == Question::Kind::stop) return false;
  reply_ = answer(question_);
  ring(done_);
  return true;
}

std::optional<MemoryMonitor::Watch> MemoryMonitor::answer(const Question& question) noexcept {
  switch (question.kind) {
    case Question::Kind::watch:
      return add(question.begin, question.end);
    case Question::Kind::intact:
      if (settle() && ranges_[question.watch].state == Range::State::intact) return question.watch;
      remove(question.watch);
      return std::nullopt;
    case Question::Kind::unwatch:
      remove(question.watch);
      return question.watch;
    default:
      return std::nullopt;
  }
}

void MemoryMonitor::read_events() noexcept {
  std::array<uffd_msg, 16> events;
  for (;;) {
    const ssize_t got = ::read(fd_, events.data(), sizeof events);
    if (got <= 0) return;
    for (std::size_t i = 0; i < static_cast<std::size_t>(got) / sizeof events[0]; ++i) {
      const uffd_msg& event = events[i];
      if (event.event == UFFD_EVENT_REMOVE) {
        changed(event.arg.remove.start, event.arg.remove.end, Range::State::emptied);
      } else if (event.event == UFFD_EVENT_UNMAP) {
        changed(event.arg.remove.start, event.arg.remove.end, Range::State::gone);
      } else if (event.event == UFFD_EVENT_REMAP) {
        changed(event.arg.remap.from, event.arg.remap.from + event.arg.remap.len,
                Range::State::gone);
      }
    }
  }
}

void MemoryMonitor::changed(std::uintptr_t begin, std::uintptr_t end, Range::State to) noexcept {
  for (Range& range : ranges_) {
    if (range.state == Range::State::free || range.end <= begin || range.begin >= end) continue;
    if (range.state == Range::State::intact) changes_.fetch_add(1, std::memory_order_relaxed);
    if (range.state != Range::State::gone) range.state = to;
  }
}

bool MemoryMonitor::settle() noexcept {
  const auto give_up = std::chrono::steady_clock::now() + kSettle;
  uffdio_writeprotect lift{{reinterpret_cast<std::uintptr_t>(probe_), page_}, 0};
  while (::ioctl(fd_, UFFDIO_WRITEPROTECT, &lift) != 0) {
    if (errno != EAGAIN || std::chrono::steady_clock::now() > give_up) return false;
    read_events();
    std::this_thread::yield();
  }
  return true;
}

std::optional<MemoryMonitor::Watch> MemoryMonitor::add(std::uintptr_t begin,
                                                       std::uintptr_t end) noexcept {
  // Events of what these addresses were before would count against the new watch.
  if (!settle()) return std::nullopt;
  const auto place = std::find_if(ranges_.begin(), ranges_.end(), [](const Range& range) {
    return range.state == Range::State::free;
  });
  if (place == ranges_.end()) return std::nullopt;
  uffdio_register all{{begin, end - begin}, UFFDIO_REGISTER_MODE_WP, 0};
  if (::ioctl(fd_, UFFDIO_REGISTER, &all) != 0) return std::nullopt;
  *place = {begin, end, Range::State::intact};
  return static_cast<Watch>(place - ranges_.begin());
}

void MemoryMonitor::remove(Watch watch) noexcept {
  const Range range = std::exchange(ranges_[watch], Range{});
  // What lies at addresses that were unmapped is not the monitor's to touch. The rest of such a
  // range stays registered, at the price of an event when it goes.
  if (range.state == Range::State::gone) return;
  // Pieces that another watch covers stay registered.
  std::uintptr_t at = range.begin;
  while (at < range.end) {
    std::uintptr_t covered = at, next = range.end;
    for (const Range& other : ranges_) {
      if (other.state == Range::State::free || other.end <= at) continue;
      if (other.begin <= at) {
        covered = std::max(covered, other.end);
      } else {
        next = std::min(next, other.begin);
      }
    }
    if (covered == at) {
      unregister(at, next);
      covered = next;
    }
    at = covered;
  }
}

void MemoryMonitor::unregister(std::uintptr_t begin, std::uintptr_t end) noexcept {
  uffdio_range range{begin, end - begin};
  // Refused where the memory went meanwhile; then there is nothing to do.
  [[maybe_unused]] const int status = ::ioctl(fd_, UFFDIO_UNREGISTER, &range);
}

}  // namespace selmcast::verbs

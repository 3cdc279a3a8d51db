#include "cli/launch.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>

#include "base/clock.h"
#include "cli/child_process.h"
#include "cli/common.h"
#include "cli/job_folder.h"
#include "store/keys.h"
#include "store/rendezvous.h"

namespace selmcast {

namespace {

/// What a stopped rank gets after the others have left together.
constexpr Duration kStoppedGrace = std::chrono::milliseconds(300);
constexpr int kTickMs = 20;
constexpr Duration kProgressPeriod = std::chrono::milliseconds(200);

volatile std::sig_atomic_t interrupted = 0;
void on_signal(int signal) {
  interrupted = signal;
}

/// A rank's own diagnostics begin with the program's name.
std::string_view without_program(std::string_view line) {
  constexpr std::string_view name = "selmcast: ";
  return line.starts_with(name) ? line.substr(name.size()) : line;
}

/// Signals that ask for the end set a flag while this lives. And children are not reaped behind our
/// back, as they are where SIGCHLD is ignored, which is inherited.
class SignalGuard {
 public:
  SignalGuard() {
    interrupted = 0;
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    ::sigaction(SIGCHLD, &action, &old_child_);
    action.sa_handler = on_signal;
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaction(kSignals[i], &action, &old_[i]);
    }
  }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;
  ~SignalGuard() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &old_[i], nullptr);
    ::sigaction(SIGCHLD, &old_child_, nullptr);
  }

 private:
  static constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  std::array<struct sigaction, kSignals.size()> old_{};
  struct sigaction old_child_ {};
};

class Launch {
 public:
  Launch(const LaunchSpec& spec, StoreServer& store) : spec_(spec), store_(store) {}
  Result<void> start();
  void watch();
  LaunchOutcome outcome();

 private:
  struct Seat {
    ChildProcess process;
    std::optional<int> status;
    bool killed_late = false;
  };
  void wait_for_news();
  void pass_lines(Rank rank);
  void notice_ends();
  void end_stragglers();
  void pass_progress();

  const LaunchSpec& spec_;
  StoreServer& store_;
  SteadyClock clock_;
  std::vector<Seat> seats_;
  std::size_t running_ = 0;
  std::optional<TimePoint> first_success_, last_end_;
  TimePoint next_progress_{};
  std::map<std::string, Bytes> last_progress_;
};

Result<void> Launch::start() {
  seats_.reserve(spec_.workers);
  for (Rank rank = 0; rank < spec_.workers; ++rank) {
    auto arguments = spec_.child_arguments;
    arguments.insert(arguments.end(),
                     {"--rank", std::to_string(rank), "--world", std::to_string(spec_.workers),
                      "--rendezvous", to_string(store_.address())});
    if (!spec_.rank_arguments.empty()) {
      const auto& extra = spec_.rank_arguments[rank];
      arguments.insert(arguments.end(), extra.begin(), extra.end());
    }
    auto child = ChildProcess::start(arguments);
    if (!child) return std::move(child).error();
    seats_.push_back(Seat{std::move(child).value(), std::nullopt, false});
    ++running_;
  }
  return {};
}

void Launch::wait_for_news() {
  std::vector<pollfd> fds;
  for (auto& seat : seats_) {
    if (!seat.status) fds.push_back({seat.process.error_fd(), POLLIN, 0});
  }
  // A child that has closed its end reports POLLHUP at once: then sleep instead of spinning.
  const int ready = ::poll(fds.data(), fds.size(), kTickMs);
  const bool hung_up = ready > 0 && std::all_of(fds.begin(), fds.end(), [](const pollfd& fd) {
                         return (fd.revents & POLLIN) == 0;
                       });
  if (hung_up) ::usleep(1000);
}

void Launch::pass_lines(Rank rank) {
  for (const auto& line : seats_[rank].process.read_lines()) {
    std::fprintf(stderr, "rank %u: %s\n", rank, one_line(without_program(line)).c_str());
  }
}

void Launch::notice_ends() {
  for (Rank rank = 0; rank < seats_.size(); ++rank) {
    auto& seat = seats_[rank];
    if (seat.status) continue;
    pass_lines(rank);
    seat.status = seat.process.ended();
    if (!seat.status) continue;
    pass_lines(rank);
    --running_;
    last_end_ = clock_.now();
    const bool good = WIFEXITED(*seat.status) && WEXITSTATUS(*seat.status) == 0;
    if (!good) store_.declare_lost(rank);
    if (good && !first_success_) first_success_ = clock_.now();
  }
}

void Launch::end_stragglers() {
  if (!last_end_) return;
  // Ranks leave together; one that stays behind was stopped or evicted and cannot end by itself.
  const bool left_behind = first_success_ && clock_.now() - *first_success_ >= spec_.timeout;
  // A stopped one has no deadlines of its own; the others' have passed when they have all ended.
  const auto patience = first_success_ ? kStoppedGrace : spec_.timeout;
  const bool only_stopped = clock_.now() - *last_end_ >= patience &&
                            std::all_of(seats_.begin(), seats_.end(), [](const Seat& seat) {
                              return seat.status || seat.process.stopped();
                            });
  if (!left_behind && !only_stopped) return;
  for (auto& seat : seats_) {
    if (seat.status) continue;
    seat.killed_late = true;
    seat.process.kill(SIGKILL);
  }
}

void Launch::pass_progress() {
  if (!spec_.on_progress || clock_.now() < next_progress_) return;
  next_progress_ = clock_.now() + kProgressPeriod;
  for (Rank rank = 0; rank < seats_.size(); ++rank) {
    const std::string key = keys::published(rank, "progress");
    auto value = store_.get(keys::result(rank, "progress"));
    if (!value || last_progress_[key] == *value) continue;
    spec_.on_progress(key, *value);
    last_progress_[key] = std::move(*value);
  }
}

void Launch::watch() {
  while (running_ > 0) {
    wait_for_news();
    notice_ends();
    end_stragglers();
    pass_progress();
    if (interrupted == 0) continue;
    for (auto& seat : seats_) seat.process.kill(SIGKILL);
  }
  pass_progress();
}

LaunchOutcome Launch::outcome() {
  LaunchOutcome out;
  int gravest = 1;
  bool finished = false;
  for (Rank rank = 0; rank < seats_.size(); ++rank) {
    const int status = *seats_[rank].status;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
      finished = true;
      continue;
    }
    out.failed_ranks.push_back(rank);
    const std::string who = "rank " + std::to_string(rank);
    std::string why;
    if (seats_[rank].killed_late) {
      why = who + " did not end with the others and was killed";
    } else if (WIFSIGNALED(status)) {
      why = who + " was ended by signal " + std::to_string(WTERMSIG(status));
    } else {
      why = who + ": " + std::string(without_program(seats_[rank].process.last_line()));
      if (gravest == 1 && (WEXITSTATUS(status) == 2 || WEXITSTATUS(status) == 3)) {
        gravest = WEXITSTATUS(status);
        out.child_errors.insert(out.child_errors.begin(), std::move(why));
        continue;
      }
    }
    out.child_errors.push_back(std::move(why));
  }
  if (interrupted != 0) {
    out.exit_status = 1;
    out.child_errors.insert(
        out.child_errors.begin(),
        "interrupted by signal " + std::to_string(interrupted) + "; all ranks were ended");
  } else {
    out.exit_status = finished ? 0 : gravest;
  }
  for (auto& [key, value] : store_.with_prefix(keys::kResults)) {
    out.results.emplace(key.substr(keys::kResults.size()), std::move(value));
  }
  return out;
}

}  // namespace

void spread_interfaces(const std::vector<std::string>& interfaces, LaunchSpec& spec) {
  if (interfaces.empty()) return;
  spec.rank_arguments.resize(spec.workers);
  for (Rank rank = 0; rank < spec.workers; ++rank) {
    auto& arguments = spec.rank_arguments[rank];
    arguments.insert(arguments.end(), {"--interface", interfaces[rank % interfaces.size()]});
  }
}

Error error_of(const LaunchOutcome& outcome) {
  const std::string why =
      outcome.child_errors.empty() ? "no rank finished" : outcome.child_errors.front();
  if (outcome.exit_status == 2) return bad_input(why);
  if (outcome.exit_status == 3) return unavailable(why);
  return failed(why);
}

Result<LaunchOutcome> launch(const LaunchSpec& spec) {
  const SignalGuard guard;
  auto folder = JobFolder::make();
  if (!folder) return std::move(folder).error();
  StoreAddress address;
  address.path = folder->socket();
  auto store = StoreServer::start(address, spec.workers);
  if (!store) return std::move(store).error();
  Launch launch(spec, **store);
  if (auto ok = launch.start(); !ok) return std::move(ok).error();
  launch.watch();
  return launch.outcome();
}

}  // namespace selmcast

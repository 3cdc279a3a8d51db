#include "tests/conformance/host_backend.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/clock.h"
#include "tests/conformance/fixture.h"
#include "transport/backends/open.h"

namespace selmcast::conformance {
namespace {

/// A rank in a process of its own, which ends with this object or with this process.
class MortalProcess {
 public:
  MortalProcess(const MortalProcess&) = delete;
  MortalProcess& operator=(const MortalProcess&) = delete;
  ~MortalProcess() { kill(); }

  /// Forks; the child opens `name` and reports its address, or why it has none.
  static Result<std::unique_ptr<MortalProcess>> start(const std::string& name,
                                                      const TransportConfig& config,
                                                      const Mortal& mortal);
  const PeerAddress& address() const { return address_; }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  struct Report {
    PeerAddress address;
    bool opened = false;
    bool unavailable = false;
    char error[400] = {};
  };
  static_assert(sizeof(Report) <= 512, "one write of a pipe arrives whole");

  explicit MortalProcess(pid_t pid) : pid_(pid) {}
  [[noreturn]] static void live(int report_to, const std::string& name,
                                const TransportConfig& config, const Mortal& mortal);
  pid_t pid_;
  PeerAddress address_;
};

void MortalProcess::live(int report_to, const std::string& name, const TransportConfig& config,
                         const Mortal& mortal) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Report report;
  auto opened = open_transport(name, config);
  Membership membership;
  if (opened) {
    report.opened = true;
    report.address = (*opened)->address();
    if (!mortal.polls) {
      auto joined = (*opened)->join({kMortalGroup}, JoinAs::receiver);
      if (joined) membership = std::move(joined).value();
    }
  } else {
    report.unavailable = opened.error().kind == ErrorKind::unavailable;
    opened.error().message.copy(report.error, sizeof report.error - 1);
  }
  if (::write(report_to, &report, sizeof report) != sizeof report || !opened) ::_exit(1);
  const SteadyClock clock;
  const TimePoint end = clock.now() + 120s;  // Should the killer never come.
  while (clock.now() < end) {
    Completion c;
    if (!mortal.polls || (*opened)->poll({&c, 1}) == 0) {
      std::this_thread::sleep_for(1ms);
      continue;
    }
    const ReceiveRequest back{c.token};
    if (c.kind == Completion::Kind::receive) (*opened)->post_receives({&back, 1});
  }
  ::_exit(1);
}

Result<std::unique_ptr<MortalProcess>> MortalProcess::start(const std::string& name,
                                                            const TransportConfig& config,
                                                            const Mortal& mortal) {
  int ends[2];
  if (::pipe(ends) != 0) return failed("conformance: pipe failed");
  const pid_t pid = ::fork();
  if (pid == 0) live(ends[1], name, config, mortal);
  ::close(ends[1]);
  std::unique_ptr<MortalProcess> process(new MortalProcess(pid));
  Report report;
  const bool whole = ::read(ends[0], &report, sizeof report) == sizeof report;
  ::close(ends[0]);
  if (!whole) return failed("conformance: the process to be killed did not report");
  if (!report.opened) {
    return report.unavailable ? unavailable(report.error) : failed(report.error);
  }
  process->address_ = report.address;
  return process;
}

class HostHarness final : public Harness {
 public:
  Transport& at(std::size_t rank) override { return *ranks[rank]; }
  PeerAddress address(std::size_t rank) override {
    return ranks[rank] != nullptr ? ranks[rank]->address() : mortal->address();
  }
  void pass(Duration time) override { std::this_thread::sleep_for(time); }
  void close(std::size_t rank) override { ranks[rank].reset(); }
  void kill_mortal() override { mortal->kill(); }

  std::unique_ptr<MortalProcess> mortal;
  std::vector<std::unique_ptr<Transport>> ranks;  // Null for the mortal one.
};

Result<std::unique_ptr<Harness>> open_ranks(const std::string& name,
                                            const std::vector<TransportConfig>& places,
                                            std::size_t count, std::optional<Mortal> mortal) {
  static std::uint64_t jobs = 0;
  // Tests run in parallel as processes of one host: each job needs a number of its own.
  const std::uint64_t job = (static_cast<std::uint64_t>(::getpid()) << 16U) + ++jobs;
  const auto place = [&](std::size_t rank) {
    TransportConfig config = places[rank % places.size()];
    config.job = job;
    config.rank = static_cast<Rank>(rank);
    config.world = static_cast<std::uint32_t>(count);
    return config;
  };
  auto harness = std::make_unique<HostHarness>();
  harness->ranks.resize(count);
  if (mortal) {
    auto started = MortalProcess::start(name, place(mortal->rank), *mortal);
    if (!started) return std::move(started).error();
    harness->mortal = std::move(started).value();
  }
  for (std::size_t r = 0; r < count; ++r) {
    if (mortal && mortal->rank == r) continue;
    auto transport = open_transport(name, place(r));
    if (!transport) return std::move(transport).error();
    harness->ranks[r] = std::move(transport).value();
  }
  return std::unique_ptr<Harness>(std::move(harness));
}

}  // namespace

Backend host_backend(const std::string& name, bool notices_death,
                     std::vector<TransportConfig> places) {
  Backend backend;
  backend.name = name;
  backend.notices_death = notices_death;
  backend.real_time = true;
  backend.open = [name, places](std::size_t ranks, std::optional<Mortal> mortal) {
    return open_ranks(name, places, ranks, mortal);
  };
  return backend;
}

}  // namespace selmcast::conformance

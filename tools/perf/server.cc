#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "tools/perf/channel.h"
#include "tools/perf/drive.h"
#include "tools/perf/perf.h"
#include "transport/verbs/raw.h"

namespace selmcast::perf {
namespace {

constexpr Duration kStragglers = std::chrono::milliseconds(300);  // Of datagrams, after the last.

class Server {
 public:
  Server(const Settings& settings, Rig rig, Channel channel)
      : s_(settings), rig_(std::move(rig)), wait_(rig_), channel_(std::move(channel)) {}

  Result<void> greet();
  /// A repeat, or nothing when the client says goodbye.
  Result<std::optional<Repeat>> repeat();
  void give_up(const Error& why) { static_cast<void>(channel_.say_text(Kind::fail, why.message)); }
  const Rig& rig() const noexcept { return rig_; }

 private:
  Result<Message> await_start();
  template <class Engine>
  Result<std::uint64_t> run_until_done(Engine& engine);
  Result<std::uint64_t> await_done();
  Result<void> drain(std::uint64_t sent);
  std::uint64_t check_target(std::uint64_t sent, Report& report);

  Settings s_;
  Rig rig_;
  EventWait wait_;
  Channel channel_;
  SteadyClock clock_;
  std::unique_ptr<Sink> sink_;
  std::unique_ptr<Ping> ping_;
};

Result<void> Server::greet() {
  auto message = channel_.expect(Kind::hello);
  if (!message) return message.error();
  auto hello = decode_hello(message->payload);
  if (!hello) return hello.error();
  if (const std::string differs = difference_of(s_, hello->settings); !differs.empty()) {
    static_cast<void>(channel_.say_text(Kind::refuse, differs + "; give both the same"));
    return bad_input("perf: the client has other flags: " + differs + "; give both the same");
  }
  const Hello own{.settings = s_, .end = rig_.end()};
  if (s_.op != Op::multicast) {
    if (auto ok = rig_.connect(s_, hello->end); !ok) return ok;
  }
  int error = 0;
  if (s_.latency) {
    ping_ = std::make_unique<Ping>(rig_, s_, hello->end, false);
    error = ping_->post_all();
  } else if (takes_receives(s_.op)) {
    sink_ = std::make_unique<Sink>(rig_, s_);
    error = sink_->post_all();
  }
  if (error != 0) return verbs::set_up_error("posting receives", rig_.opened.port.text(), error);
  if (auto ok = channel_.say(Kind::hello, encode_hello(own)); !ok) return ok;
  if (auto ready = channel_.expect(Kind::ready); !ready) return ready.error();
  return channel_.say(Kind::ready);
}

/// The number of messages in a `done`.
Result<std::uint64_t> sent_of(const Message& message) {
  WireReader in(message.payload);
  const auto sent = in.get<std::uint64_t>();
  if (message.kind != Kind::done || !sent) return failed("perf: the client spoke out of turn");
  return *sent;
}

Result<std::uint64_t> Server::await_done() {
  for (;;) {
    auto message = channel_.poll(Channel::kSayAlive);
    if (!message) return message.error();
    if (*message) return sent_of(**message);
  }
}

template <class Engine>
Result<std::uint64_t> Server::run_until_done(Engine& engine) {
  for (;;) {
    auto slice = run_slice(engine, wait_, clock_.now() + kSlice, "serving");
    auto message = channel_.poll(Duration::zero());
    if (!message) return message.error();
    if (!slice) return slice.error();
    if (*message) return sent_of(**message);
  }
}

/// What is still on its way: of reliable messages all, of datagrams what comes soon.
Result<void> Server::drain(std::uint64_t sent) {
  sink_->expect(sent);
  std::uint64_t seen = sink_->seen().received;
  TimePoint end = clock_.now() + (unreliable(s_.op) ? kStragglers : s_.timeout);
  while (clock_.now() < end) {
    auto slice = run_slice(*sink_, wait_, clock_.now() + kSlice, "serving");
    if (!slice) return slice.error();
    if (*slice == Slice::finished) return {};
    if (auto message = channel_.poll(Duration::zero()); !message) return message.error();
    if (sink_->seen().received == seen) continue;
    seen = sink_->seen().received;
    end = clock_.now() + (unreliable(s_.op) ? kStragglers : s_.timeout);
  }
  if (unreliable(s_.op)) return {};
  return failed("perf: " + std::to_string(sent - seen) + " of " + std::to_string(sent) +
                " messages that completed at the client never came");
}

/// What writes and atomics left in this end's memory. Cleared afterwards, so that the next repeat
/// must do it again.
std::uint64_t Server::check_target(std::uint64_t sent, Report& report) {
  if (s_.op == Op::atomic) {
    std::uint64_t sum = 0;
    for (std::size_t q = 0; q < rig_.queues.size(); ++q) {
      std::uint64_t value = 0;
      std::memcpy(&value, rig_.target + q * rig_.stride, sizeof value);
      std::memset(rig_.target + q * rig_.stride, 0, sizeof value);
      sum += value;
    }
    if (sum != sent) ++report.wrong;
    return sizeof(std::uint64_t) * rig_.queues.size();
  }
  if ((s_.op != Op::write && s_.op != Op::write_imm) || s_.latency) return 0;
  std::uint64_t checked = 0;
  for (std::size_t q = 0; q < std::min<std::uint64_t>(rig_.queues.size(), sent); ++q) {
    std::byte* const at = rig_.target + q * rig_.stride;
    if (!std::equal(at, at + s_.size, rig_.source)) ++report.wrong;
    std::memset(at, 0, s_.size);
    checked += s_.size;
  }
  return checked;
}

Result<Message> Server::await_start() {
  for (;;) {
    auto message = channel_.poll(Channel::kSayAlive);
    if (!message) return message.error();
    if (!*message) continue;
    if ((*message)->kind == Kind::start || (*message)->kind == Kind::bye) {
      return std::move(**message);
    }
    return failed("perf: the client spoke out of turn");
  }
}

Result<std::optional<Repeat>> Server::repeat() {
  auto start = await_start();
  if (!start) return start.error();
  if (start->kind == Kind::bye) return std::optional<Repeat>();
  WireReader in(start->payload);
  const auto round = in.get<std::uint32_t>();
  if (!round) return failed("perf: the client spoke out of turn");
  if (sink_) sink_->start(*round);
  const auto before = counters_of(rig_);
  const double cpu = cpu_seconds();
  if (auto ok = channel_.say(Kind::ready); !ok) return ok.error();
  auto sent = sink_ ? run_until_done(*sink_) : ping_ ? run_until_done(*ping_) : await_done();
  if (!sent) return sent.error();
  if (sink_) {
    if (auto ok = drain(*sent); !ok) return ok.error();
  }
  Repeat out;
  out.number = *round;
  out.cpu_seconds = cpu_seconds() - cpu;
  out.messages = *sent;
  Report report = sink_ ? sink_->seen() : Report{};
  report.cpu_ns = static_cast<std::uint64_t>(out.cpu_seconds * 1e9);
  report.bytes_checked += check_target(*sent, report);
  report.moved = moved(before, counters_of(rig_));
  if (auto ok = channel_.say(Kind::report, encode_report(report)); !ok) return ok.error();
  out.moved = report.moved;
  out.reports.push_back(std::move(report));
  return std::optional<Repeat>(std::move(out));
}

Result<void> serve(Server& server, Outcome& out) {
  if (auto ok = server.greet(); !ok) return ok;
  for (;;) {
    auto repeat = server.repeat();
    if (!repeat) return repeat.error();
    if (!*repeat) return {};
    if ((*repeat)->reports[0].wrong != 0) {
      return failed("perf: " + std::to_string((*repeat)->reports[0].wrong) +
                    " messages arrived damaged or out of order");
    }
    if ((*repeat)->number > 0) out.repeats.push_back(std::move(**repeat));
  }
}

}  // namespace

Result<Outcome> run_server(const Settings& settings) {
  auto rig = Rig::make(settings, true);
  if (!rig) return std::move(rig).error();
  auto channel = Channel::accept_one(settings.port, settings.timeout);
  if (!channel) return channel.error();
  Server server(settings, std::move(rig).value(), std::move(channel).value());
  Outcome out;
  out.port = server.rig().opened.port.text();
  out.mtu_bytes = server.rig().opened.port.mtu_bytes;
  if (auto ok = serve(server, out); !ok) {
    if (ok.error().kind != ErrorKind::bad_input) server.give_up(ok.error());
    return ok.error();
  }
  return out;
}

}  // namespace selmcast::perf

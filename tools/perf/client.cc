#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>

#include "tools/perf/channel.h"
#include "tools/perf/drive.h"
#include "tools/perf/figures.h"
#include "tools/perf/perf.h"

namespace selmcast::perf {
namespace {

constexpr std::uint32_t kWarmUpShare = 4;  // Of a repeat.

/// The client's end from the first connection on.
class Client {
 public:
  Client(const Settings& settings, Rig rig) : s_(settings), rig_(std::move(rig)), wait_(rig_) {}

  Result<void> meet(const std::vector<std::string>& hosts);
  Result<Repeat> repeat(std::uint32_t round);
  Result<void> leave();
  /// Tells the servers why this end gives up, so that they need not wait for their deadline.
  void give_up(const Error& why) {
    for (Channel& channel : channels_) static_cast<void>(channel.say_text(Kind::fail, why.message));
  }
  /// What reads and atomics brought is right. Returns the bytes looked at.
  Result<std::uint64_t> check_own();
  const Rig& rig() const noexcept { return rig_; }

 private:
  Result<void> greet(Channel& channel);
  Result<void> connect();
  Result<void> check_health();
  template <class Engine>
  Result<void> drive(Engine& engine, Duration duration);
  std::uint64_t messages_of(std::uint32_t round) const noexcept;
  void add_latency(Repeat& repeat);

  Settings s_;
  Rig rig_;
  EventWait wait_;
  SteadyClock clock_;
  std::vector<Channel> channels_;
  std::optional<End> peer_;
  std::unique_ptr<Flood> flood_;
  std::unique_ptr<Ping> ping_;
  std::uint64_t sent_ = 0;  ///< In all repeats.
};

Result<void> Client::greet(Channel& channel) {
  const Hello own{.settings = s_, .end = rig_.end()};
  if (auto ok = channel.say(Kind::hello, encode_hello(own)); !ok) return ok;
  auto message = channel.expect(Kind::hello);
  if (!message) return message.error();
  auto hello = decode_hello(message->payload);
  if (!hello) return hello.error();
  if (hello->end.queues.size() != s_.queue_pairs) {
    return failed("perf: " + channel.who() + " has another number of queue pairs");
  }
  peer_ = std::move(hello->end);
  return {};
}

Result<void> Client::connect() {
  if (s_.op == Op::multicast) {
    if (auto ok = rig_.address_group(s_); !ok) return ok;
  } else if (auto ok = rig_.connect(s_, *peer_); !ok) {
    return ok;
  }
  if (s_.rate_limit_kbps != 0) {
    if (auto ok = rig_.limit_rate(s_.rate_limit_kbps); !ok) return ok;
  }
  if (!s_.latency) {
    flood_ = std::make_unique<Flood>(rig_, s_, &*peer_);
    return {};
  }
  ping_ = std::make_unique<Ping>(rig_, s_, *peer_, true);
  const int error = ping_->post_all();
  return error == 0 ? Result<void>() : failed("perf: posting receives: " + text_of(ping_->fault()));
}

Result<void> Client::meet(const std::vector<std::string>& hosts) {
  for (const std::string& host : hosts) {
    auto channel = Channel::connect(host, s_.port, s_.timeout);
    if (!channel) return channel.error();
    channels_.push_back(std::move(channel).value());
    if (auto ok = greet(channels_.back()); !ok) return ok;
  }
  if (auto ok = connect(); !ok) return ok;
  for (Channel& channel : channels_) {
    if (auto ok = channel.say(Kind::ready); !ok) return ok;
    if (auto ready = channel.expect(Kind::ready); !ready) return ready.error();
  }
  return {};
}

Result<void> Client::check_health() {
  for (Channel& channel : channels_) {
    auto message = channel.poll(Duration::zero());
    if (!message) return message.error();
    if (*message) return failed("perf: " + channel.who() + " spoke out of turn");
  }
  return {};
}

/// Until the repeat is finished: by its count, or after `duration`.
template <class Engine>
Result<void> Client::drive(Engine& engine, Duration duration) {
  const TimePoint end = s_.iterations == 0 ? clock_.now() + duration : kNever;
  bool finishing = false;
  std::uint64_t done = engine.completed();
  TimePoint progress = clock_.now();
  for (;;) {
    const TimePoint now = clock_.now();
    auto slice = run_slice(engine, wait_, finishing ? now + kSlice : std::min(now + kSlice, end),
                           "the measurement");
    if (!slice) {
      // A server that died is the better reason, where it is known already.
      auto alive = check_health();
      return alive ? Result<void>(slice.error())
                   : failed(alive.error().message + " (" + slice.error().message + ")");
    }
    if (*slice == Slice::finished) return {};
    if (auto ok = check_health(); !ok) return ok;
    if (!finishing && clock_.now() >= end) {
      engine.finish();
      finishing = true;
    }
    if (engine.completed() != done) {
      done = engine.completed();
      progress = clock_.now();
    } else if (clock_.now() - progress > s_.timeout) {
      return failed(
          "perf: no message completes any more, though the server lives (--timeout); is "
          "the data path blocked (UDP port 4791), or are datagrams lost?");
    }
  }
}

std::uint64_t Client::messages_of(std::uint32_t round) const noexcept {
  if (s_.iterations == 0 || round > 0) return s_.iterations;
  return std::max<std::uint64_t>(s_.iterations / kWarmUpShare, 1);
}

void Client::add_latency(Repeat& repeat) {
  const auto samples = ping_->samples();
  std::sort(samples.begin(), samples.end());
  repeat.p50 = percentile(samples, 0.5);
  repeat.p99 = percentile(samples, 0.99);
  repeat.p999 = percentile(samples, 0.999);
  repeat.lost = ping_->lost();
  if (samples.empty()) return;
  repeat.least = samples.front();
  repeat.most = samples.back();
  double sum = 0;
  for (const std::uint32_t ns : samples) sum += ns;
  repeat.mean = sum / static_cast<double>(samples.size());
}

Result<Repeat> Client::repeat(std::uint32_t round) {
  WireWriter number;
  const Bytes start = number.put(round).take();
  for (Channel& channel : channels_) {
    if (auto ok = channel.say(Kind::start, start); !ok) return ok.error();
    if (auto ready = channel.expect(Kind::ready); !ready) return ready.error();
  }
  const auto before = counters_of(rig_);
  const double cpu = cpu_seconds();
  const TimePoint began = clock_.now();
  const Duration duration = round == 0 ? s_.duration / kWarmUpShare : s_.duration;
  if (ping_) {
    ping_->start(messages_of(round));
    if (auto ok = drive(*ping_, duration); !ok) return ok.error();
  } else {
    flood_->start(round, messages_of(round));
    if (auto ok = drive(*flood_, duration); !ok) return ok.error();
  }
  Repeat out;
  out.seconds = std::chrono::duration<double>(clock_.now() - began).count();
  out.cpu_seconds = cpu_seconds() - cpu;
  out.messages = ping_ ? ping_->completed() : flood_->completed();
  sent_ += out.messages;
  if (ping_) add_latency(out);
  const Bytes done = WireWriter().put(out.messages).take();
  for (Channel& channel : channels_) {
    if (auto ok = channel.say(Kind::done, done); !ok) return ok.error();
  }
  for (Channel& channel : channels_) {
    auto message = channel.expect(Kind::report);
    if (!message) return message.error();
    auto report = decode_report(message->payload);
    if (!report) return report.error();
    out.reports.push_back(std::move(report).value());
  }
  out.moved = moved(before, counters_of(rig_));
  return out;
}

Result<std::uint64_t> Client::check_own() {
  if (s_.op != Op::read) return std::uint64_t{0};
  std::uint64_t checked = 0;
  for (std::size_t q = 0; q < rig_.queues.size(); ++q) {
    // With few messages some queue pairs had none.
    if (s_.iterations != 0 && q >= s_.iterations) break;
    const std::byte* const at = rig_.target + q * rig_.stride;
    if (!std::equal(at, at + s_.size, rig_.source)) {
      return failed("perf: what was read from the server is not what it holds");
    }
    checked += s_.size;
  }
  return checked;
}

Result<void> Client::leave() {
  for (Channel& channel : channels_) {
    if (auto ok = channel.say(Kind::bye); !ok) return ok;
  }
  return {};
}

Result<void> check_reports(const Repeat& repeat) {
  for (const Report& report : repeat.reports) {
    if (report.wrong == 0) continue;
    return failed("perf: " + std::to_string(report.wrong) +
                  " messages arrived damaged or out of order: the figure means nothing; suspect "
                  "the device, its driver or memory");
  }
  return {};
}

Result<void> run_repeats(Client& client, const Settings& settings, const OnRepeat& on_repeat,
                         Outcome& out) {
  for (std::uint32_t round = settings.warm_up ? 0 : 1; round <= settings.repeats; ++round) {
    auto repeat = client.repeat(round);
    if (!repeat) return repeat.error();
    if (auto ok = check_reports(*repeat); !ok) return ok;
    if (round > 0) out.repeats.push_back(std::move(repeat).value());
    if (on_repeat) on_repeat(round, settings.repeats);
  }
  auto checked = client.check_own();
  if (!checked) return checked.error();
  out.bytes_checked = *checked;
  return {};
}

}  // namespace

Result<Outcome> run_client(const Settings& settings, const std::vector<std::string>& hosts,
                           const OnRepeat& on_repeat) {
  if (hosts.size() > 1 && settings.op != Op::multicast) {
    return bad_input("perf: several servers are for --op multicast only");
  }
  auto rig = Rig::make(settings, false);
  if (!rig) return std::move(rig).error();
  Client client(settings, std::move(rig).value());
  Outcome out;
  out.port = client.rig().opened.port.text();
  out.mtu_bytes = client.rig().opened.port.mtu_bytes;
  out.inlined = settings.size <= client.rig().inline_bytes && !answered_by_device(settings.op);
  auto ok = client.meet(hosts);
  if (ok) ok = run_repeats(client, settings, on_repeat, out);
  if (!ok) {
    client.give_up(ok.error());
    return ok.error();
  }
  if (auto left = client.leave(); !left) return left.error();
  return out;
}

}  // namespace selmcast::perf

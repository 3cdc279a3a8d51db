// One end of a multicast whose other end is another program.
#include "tools/perf/drive.h"
#include "tools/perf/perf.h"

namespace selmcast::perf {
namespace {

Outcome outcome_of(const Rig& rig) {
  Outcome out;
  out.port = rig.opened.port.text();
  out.mtu_bytes = rig.opened.port.mtu_bytes;
  return out;
}

}  // namespace

Result<Outcome> send_alone(const Settings& settings) {
  auto rig = Rig::make(settings, false);
  if (!rig) return std::move(rig).error();
  if (auto ok = rig->address_group(settings); !ok) return ok.error();
  const SteadyClock clock;
  EventWait wait(*rig);
  Flood flood(*rig, settings, nullptr);
  const TimePoint began = clock.now();
  const double cpu = cpu_seconds();
  flood.start(1, settings.iterations);
  auto slice = run_slice(flood, wait, began + settings.timeout, "sending");
  if (!slice) return slice.error();
  if (*slice != Slice::finished) {
    return failed("perf: the device sent " + std::to_string(flood.completed()) + " of " +
                  std::to_string(settings.iterations) + " messages by the deadline (--timeout)");
  }
  Outcome out = outcome_of(*rig);
  Repeat repeat;
  repeat.messages = flood.completed();
  repeat.seconds = std::chrono::duration<double>(clock.now() - began).count();
  repeat.cpu_seconds = cpu_seconds() - cpu;
  out.repeats.push_back(std::move(repeat));
  return out;
}

Result<Outcome> receive_alone(const Settings& settings) {
  auto rig = Rig::make(settings, true);
  if (!rig) return std::move(rig).error();
  const SteadyClock clock;
  EventWait wait(*rig);
  Sink sink(*rig, settings, false);
  if (const int error = sink.post_all(); error != 0) {
    return failed("perf: posting receives: error " + std::to_string(error));
  }
  const double cpu = cpu_seconds();
  sink.start(0);
  sink.expect(settings.iterations);
  auto slice = run_slice(sink, wait, clock.now() + settings.timeout, "receiving");
  if (!slice) return slice.error();
  const Report& seen = sink.seen();
  if (*slice != Slice::finished) {
    return failed("perf: " + std::to_string(seen.received) + " of " +
                  std::to_string(settings.iterations) +
                  " messages of the group came by the deadline (--timeout); does the sender send "
                  "to this group, on this network?");
  }
  if (seen.wrong != 0) {
    return failed("perf: " + std::to_string(seen.wrong) + " messages have not --size " +
                  std::to_string(settings.size) + " bytes");
  }
  Outcome out = outcome_of(*rig);
  Repeat repeat;
  repeat.messages = seen.received;
  repeat.seconds = static_cast<double>(seen.elapsed_ns) / 1e9;
  repeat.cpu_seconds = cpu_seconds() - cpu;
  repeat.reports.push_back(seen);
  out.repeats.push_back(std::move(repeat));
  return out;
}

}  // namespace selmcast::perf

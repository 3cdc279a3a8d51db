#include "tools/perf/exchange.h"

#include <algorithm>

namespace selmcast::perf {
namespace {

constexpr std::uint32_t kMagic = 0x46525053;  // "SPRF"
constexpr std::uint16_t kVersion = 1;
constexpr std::uint32_t kNumberMost = 0xFFFFFF;  // Queue pair and packet sequence numbers.
constexpr std::uint8_t kLatency = 1, kVerifyAll = 2;
constexpr std::uint32_t kQueuesMost = 64;

Error malformed(const std::string& what) {
  return bad_input("perf: the other end's message is malformed: " + what +
                   "; are both ends selmcast perf of the same version?");
}

Result<Settings> decode_settings(WireReader& in) {
  const auto op = in.get<std::uint8_t>();
  const auto flags = in.get<std::uint8_t>();
  const auto size = in.get<std::uint32_t>();
  const auto depth = in.get<std::uint32_t>();
  const auto queues = in.get<std::uint32_t>();
  const auto group = in.get<std::uint32_t>();
  if (!op || !flags || !size || !depth || !queues || !group) return malformed("it is cut short");
  if (*op >= kOps) return malformed("operation " + std::to_string(*op));
  if ((*flags & ~(kLatency | kVerifyAll)) != 0) return malformed("unknown flags");
  Settings out;
  out.op = static_cast<Op>(*op);
  out.latency = (*flags & kLatency) != 0;
  out.verify_all = (*flags & kVerifyAll) != 0;
  out.size = *size;
  out.depth = *depth;
  out.queue_pairs = *queues;
  out.group = *group;
  return out;
}

Result<End> decode_end(WireReader& in, std::uint32_t queues) {
  End out;
  for (auto& byte : out.gid) byte = in.get<std::uint8_t>().value_or(0);
  out.lid = in.get<std::uint16_t>().value_or(0);
  out.mtu = in.get<std::uint8_t>().value_or(0);
  out.reads = in.get<std::uint8_t>().value_or(0);
  out.rkey = in.get<std::uint32_t>().value_or(0);
  out.source = in.get<std::uint64_t>().value_or(0);
  out.target = in.get<std::uint64_t>().value_or(0);
  if (queues == 0 || queues > kQueuesMost) {
    return malformed(std::to_string(queues) + " queue pairs");
  }
  for (std::uint32_t i = 0; i < queues; ++i) {
    const auto qpn = in.get<std::uint32_t>();
    const auto psn = in.get<std::uint32_t>();
    if (!qpn || !psn) return malformed("it is cut short");
    if (*qpn > kNumberMost || *psn > kNumberMost) return malformed("a number beyond 24 bits");
    out.queues.push_back({.qpn = *qpn, .psn = *psn});
  }
  if (out.mtu < 1 || out.mtu > 5) return malformed("MTU " + std::to_string(out.mtu));
  return out;
}

}  // namespace

Bytes encode_message(Kind kind, std::span<const std::byte> payload) {
  WireWriter out;
  out.put(static_cast<std::uint32_t>(payload.size())).put(static_cast<std::uint16_t>(kind));
  Bytes bytes = out.take();
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

Result<Header> decode_header(std::span<const std::byte, kHeaderBytes> bytes) {
  const auto size = load_le<std::uint32_t>(bytes.data());
  const auto kind = load_le<std::uint16_t>(bytes.data() + 4);
  if (kind < static_cast<std::uint16_t>(Kind::hello) ||
      kind > static_cast<std::uint16_t>(Kind::fail)) {
    return malformed("kind " + std::to_string(kind));
  }
  if (size > kMessageMost) return malformed(std::to_string(size) + " bytes");
  return Header{.bytes = size, .kind = static_cast<Kind>(kind)};
}

Bytes encode_hello(const Hello& hello) {
  const Settings& s = hello.settings;
  const End& end = hello.end;
  WireWriter out;
  out.put(kMagic).put(kVersion).put(static_cast<std::uint8_t>(s.op));
  out.put(static_cast<std::uint8_t>((s.latency ? kLatency : 0) | (s.verify_all ? kVerifyAll : 0)));
  out.put(s.size).put(s.depth).put(s.queue_pairs).put(s.group);
  for (const std::uint8_t byte : end.gid) out.put(byte);
  out.put(end.lid).put(end.mtu).put(end.reads).put(end.rkey).put(end.source).put(end.target);
  for (const QueueEnd& queue : end.queues) out.put(queue.qpn).put(queue.psn);
  return out.take();
}

Result<Hello> decode_hello(std::span<const std::byte> bytes) {
  WireReader in(bytes);
  const auto magic = in.get<std::uint32_t>();
  const auto version = in.get<std::uint16_t>();
  if (!magic || !version) return malformed("it is cut short");
  if (*magic != kMagic) return malformed("it does not begin as selmcast perf does");
  if (*version != kVersion) {
    return malformed("version " + std::to_string(*version) + ", this is " +
                     std::to_string(kVersion));
  }
  auto settings = decode_settings(in);
  if (!settings) return std::move(settings).error();
  auto end = decode_end(in, settings->queue_pairs);
  if (!end) return std::move(end).error();
  if (!in.finished()) return malformed("its size does not fit its queue pairs");
  return Hello{.settings = std::move(settings).value(), .end = std::move(end).value()};
}

Bytes encode_report(const Report& report) {
  WireWriter out;
  out.put(report.received).put(report.bytes_checked).put(report.wrong).put(report.late);
  out.put(report.foreign).put(report.elapsed_ns).put(report.cpu_ns);
  const auto count = std::min<std::size_t>(report.moved.size(), kCountersMost);
  out.put(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    out.put_text(std::string_view(report.moved[i].name).substr(0, kNameMost));
    out.put(report.moved[i].by);
  }
  return out.take();
}

Result<Report> decode_report(std::span<const std::byte> bytes) {
  WireReader in(bytes);
  Report out;
  for (std::uint64_t* field : {&out.received, &out.bytes_checked, &out.wrong, &out.late,
                               &out.foreign, &out.elapsed_ns, &out.cpu_ns}) {
    const auto value = in.get<std::uint64_t>();
    if (!value) return malformed("it is cut short");
    *field = *value;
  }
  const auto count = in.get<std::uint32_t>();
  if (!count || *count > kCountersMost) return malformed("too many counters");
  for (std::uint32_t i = 0; i < *count; ++i) {
    const auto name = in.get_bytes();
    const auto by = in.get<std::uint64_t>();
    if (!name || !by) return malformed("it is cut short");
    if (name->size() > kNameMost) return malformed("a counter's name is too long");
    out.moved.push_back({.name = text_in(*name), .by = *by});
  }
  if (!in.finished()) return malformed("bytes are left over");
  return out;
}

}  // namespace selmcast::perf

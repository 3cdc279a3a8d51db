#include "probes/report.h"

#include <algorithm>

#include "probes/arrival_curve.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kTrainsMax = 100'000;

template <class T>
void put_list(WireWriter& out, const std::vector<T>& values) {
  out.put(static_cast<std::uint32_t>(values.size()));
  for (const T value : values) out.put(value);
}

template <class T>
std::optional<std::vector<T>> get_list(WireReader& in) {
  const auto size = in.get<std::uint32_t>();
  if (!size || *size > kTrainsMax || *size > in.remaining() / sizeof(T)) return std::nullopt;
  std::vector<T> values(*size);
  for (T& value : values) value = in.get<T>().value_or(0);
  return values;
}

std::optional<RankReport> parse_report(std::span<const std::byte> bytes, std::size_t world) {
  WireReader in(bytes);
  auto transmit = get_list<std::uint64_t>(in);
  auto receive = get_list<std::uint64_t>(in);
  const auto latency = in.get<std::uint64_t>();
  const auto per_peer = in.get<std::uint32_t>();
  auto arrived = get_list<std::uint32_t>(in);
  if (!transmit || !receive || !latency || !per_peer || !arrived || !in.finished()) {
    return std::nullopt;
  }
  if (transmit->empty() || receive->empty() || *latency > INT64_MAX) return std::nullopt;
  if (!arrived->empty() && arrived->size() != world) return std::nullopt;
  return RankReport{std::move(*transmit), std::move(*receive),
                    Duration(static_cast<Duration::rep>(*latency)), *per_peer, std::move(*arrived)};
}

LinkSide side_of(const std::vector<Kbps>& rates) {
  const auto [low, high] = std::minmax_element(rates.begin(), rates.end());
  return {.available_kbps = median_of(rates), .low_kbps = *low, .high_kbps = *high};
}

double loss_of(std::uint64_t sent, std::uint64_t arrived) noexcept {
  if (sent == 0) return 0.0;
  // Duplicated pings must not make a loss negative.
  return 1.0 - static_cast<double>(std::min(sent, arrived)) / static_cast<double>(sent);
}

}  // namespace

Bytes serialize(const RankReport& report) {
  WireWriter out;
  put_list(out, report.transmit);
  put_list(out, report.receive);
  out.put(static_cast<std::uint64_t>(report.latency.count()));
  out.put(report.pings_per_peer);
  put_list(out, report.pings_arrived);
  return std::move(out).take();
}

Result<std::vector<RankReport>> parse_reports(std::span<const Bytes> values) {
  std::vector<RankReport> reports;
  for (const Bytes& value : values) {
    auto report = parse_report(value, values.size());
    if (!report) {
      return failed("rank " + std::to_string(reports.size()) +
                    " published a malformed probe report; check that all ranks run one version");
    }
    reports.push_back(std::move(*report));
  }
  return reports;
}

std::vector<LinkEstimate> estimates_of(std::span<const RankReport> reports, TimePoint now) {
  const std::size_t world = reports.size();
  std::vector<LinkEstimate> estimates(world);
  for (std::size_t r = 0; r < world; ++r) {
    std::uint64_t sent_to = 0, arrived_at = 0, arrived_from = 0;
    for (std::size_t other = 0; other < world; ++other) {
      if (other == r) continue;
      sent_to += reports[other].pings_per_peer;
      if (!reports[r].pings_arrived.empty()) arrived_at += reports[r].pings_arrived[other];
      if (!reports[other].pings_arrived.empty()) arrived_from += reports[other].pings_arrived[r];
    }
    const std::uint64_t sent_from = std::uint64_t{reports[r].pings_per_peer} * (world - 1);
    LinkEstimate& estimate = estimates[r];
    estimate.rank = static_cast<Rank>(r);
    estimate.transmit = side_of(reports[r].transmit);
    estimate.receive = side_of(reports[r].receive);
    estimate.transmit.loss = loss_of(sent_from, arrived_from);
    estimate.receive.loss = loss_of(sent_to, arrived_at);
    estimate.latency = reports[r].latency;
    estimate.measured = now;
    estimate.repeats = static_cast<std::uint32_t>(reports[r].transmit.size());
  }
  return estimates;
}

std::string one_line(std::span<const std::byte> text) {
  std::string line;
  for (const std::byte b : text.first(std::min<std::size_t>(text.size(), 500))) {
    const auto c = static_cast<unsigned char>(b);
    line.push_back(c < 0x20 || c == 0x7F ? ' ' : static_cast<char>(c));
  }
  return line;
}

}  // namespace selmcast

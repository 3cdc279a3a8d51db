#include "probes/arrival_curve.h"

#include <algorithm>

#include "base/check.h"

namespace selmcast {
namespace {

constexpr std::size_t kSamplesMax = 8192;
constexpr Duration kSpacing = std::chrono::microseconds(50);

}  // namespace

ArrivalCurve::ArrivalCurve() {
  samples_.reserve(kSamplesMax);
}

void ArrivalCurve::clear() noexcept {
  samples_.clear();
}

void ArrivalCurve::add(TimePoint at, std::uint64_t bytes) noexcept {
  const bool full = samples_.size() == kSamplesMax;
  // What arrives in one instant is one sample. Otherwise the first stays: it begins the curve.
  const bool same = !samples_.empty() && samples_.back().at == at;
  const bool close = samples_.size() >= 2 && at - samples_[samples_.size() - 2].at < kSpacing;
  if (full || same || close) {
    samples_.back() = {at, bytes};
  } else {
    samples_.push_back({at, bytes});
  }
}

std::optional<Kbps> ArrivalCurve::rate_between(TimePoint from, TimePoint to) const noexcept {
  if (samples_.empty()) return std::nullopt;
  from = std::max(from, samples_.front().at);
  const auto later = [](TimePoint t, const Sample& s) { return t < s.at; };
  const auto past_end = std::upper_bound(samples_.begin(), samples_.end(), to, later);
  if (past_end == samples_.begin()) return std::nullopt;
  const Sample last = *(past_end - 1);
  if (last.at <= from) return std::nullopt;
  // samples_.front().at <= from < last.at, so there is a sample on either side.
  const auto after = std::upper_bound(samples_.begin(), past_end, from, later);
  const Sample& a = *(after - 1);
  const double share =
      static_cast<double>((from - a.at).count()) / static_cast<double>((after->at - a.at).count());
  const auto since_a =
      static_cast<std::uint64_t>(share * static_cast<double>(after->bytes - a.bytes));
  return rate_of(last.bytes - a.bytes - since_a, last.at - from);
}

TimePoint ArrivalCurve::end_of_batch(TimePoint from, TimePoint to) const noexcept {
  TimePoint best = from;
  Duration longest{};
  for (std::size_t i = 0; i + 1 < samples_.size(); ++i) {
    const Sample& sample = samples_[i];
    const Duration pause = samples_[i + 1].at - sample.at;
    if (sample.at < from || sample.at > to || pause <= longest) continue;
    longest = pause;
    best = sample.at;
  }
  return best;
}

std::optional<Kbps> ArrivalCurve::steady_rate(TimePoint start, TimePoint end) const noexcept {
  const Duration time = end - start;
  const auto steady = rate_between(end_of_batch(start + time / 3, start + time / 2), end);
  if (steady && *steady > 0) return steady;
  if (samples_.empty()) return std::nullopt;
  return rate_between(samples_.front().at, samples_.back().at);
}

Kbps rate_of(std::uint64_t bytes, Duration time) noexcept {
  SELMCAST_CHECK(time.count() > 0, "a rate needs time");
  // 8 bits per byte and 1e6 ns per ms; bytes stay far below 2^40, so the product fits.
  return bytes * 8'000'000 / static_cast<std::uint64_t>(time.count());
}

std::uint64_t median_of(std::vector<std::uint64_t> values) {
  SELMCAST_CHECK(!values.empty(), "the median of nothing");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace selmcast

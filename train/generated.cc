// The generated data set, and which data `--data` names (declared in dataset.h).
#include <array>
#include <charconv>
#include <optional>

#include "base/random.h"
#include "train/dataset.h"

namespace selmcast {
namespace {

constexpr std::uint32_t kCentres = 20;
constexpr double kSpread = 1.4;
constexpr double kWrongLabels = 0.01;
constexpr double kScale = 0.25;
constexpr std::uint64_t kClusterSeed = 0x636C757374657273U;
constexpr std::uint32_t kSamples = 20'000;
constexpr std::uint32_t kSamplesMin = 1000, kSamplesMax = 1'000'000;
constexpr std::string_view kGenerated = "generated";

/// Plus or minus one, by the highest bit of one draw.
double sign(SplitMix64& random) {
  return random() >> 63U != 0 ? 1.0 : -1.0;
}

/// Mean 0 and variance 1, nearly normal: no function of the mathematical library, whose last bits
/// differ from machine to machine, is in it.
double deviation(SplitMix64& random) {
  constexpr int kTerms = 12;
  double sum = 0.0;
  for (int i = 0; i < kTerms; ++i) sum += random.unit();
  return sum - kTerms / 2.0;
}

std::optional<std::uint32_t> sample_count(std::string_view text) {
  std::uint32_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  if (count < kSamplesMin || count > kSamplesMax) return {};
  return count;
}

}  // namespace

Dataset generate_clusters(std::uint32_t samples) {
  std::array<std::array<double, Dataset::kFeatures>, kCentres> centres{};
  SplitMix64 shape(mix_seed(kClusterSeed));
  for (auto& centre : centres) {
    for (double& value : centre) value = sign(shape);
  }
  Dataset data;
  data.name = std::string(kGenerated) + ":" + std::to_string(samples);
  data.pixels.reserve(std::size_t{samples} * Dataset::kFeatures);
  data.labels.reserve(samples);
  for (std::uint32_t i = 0; i < samples; ++i) {
    SplitMix64 random(mix_seed(kClusterSeed + 1 + i));
    const auto which = static_cast<std::uint32_t>(random.below(kCentres));
    const double side = sign(random);
    const bool wrong = random.chance(kWrongLabels);
    const auto other = static_cast<std::uint32_t>(random.below(Dataset::kClasses - 1));
    const std::uint32_t label = which + (wrong ? 1 + other : 0);
    data.labels.push_back(static_cast<std::uint8_t>(label % Dataset::kClasses));
    for (const double value : centres[which]) {
      data.pixels.push_back(
          static_cast<float>(kScale * (side * value + kSpread * deviation(random))));
    }
  }
  return data;
}

Result<Dataset> load_data(const std::string& source) {
  if (source.starts_with(kGenerated)) {
    const std::string_view rest = std::string_view(source).substr(kGenerated.size());
    if (rest.empty()) return generate_clusters(kSamples);
    if (rest.front() == ':') {
      const auto count = sample_count(rest.substr(1));
      if (count) return generate_clusters(*count);
      return bad_input("--data " + source + ": the number of samples is not an integer " +
                       std::to_string(kSamplesMin) + ".." + std::to_string(kSamplesMax));
    }
  }
  if (!source.empty() && source != "digits") {
    auto data = load_digits(source);
    if (data) data->name = source;
    return data;
  }
  const auto shipped = find_digits();
  if (!shipped) return shipped.error();
  return load_digits(*shipped);
}

}  // namespace selmcast

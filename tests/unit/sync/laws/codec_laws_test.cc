// Laws of the Codec axis. Every codec stands once in codecs(); to add one, write a row.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <set>

#include "base/random.h"
#include "base/units.h"
#include "sync/mix/kernels.h"
#include "sync/steps/coordinates.h"

namespace selmcast {
namespace {

using Floats = std::vector<float>;

constexpr std::uint32_t kElements = 403;

/// One job's codec, equal on all ranks.
class Codec {
 public:
  virtual ~Codec() = default;
  /// A new round: what travels in it is agreed on.
  virtual void next() {}
  virtual std::vector<std::byte> encode(const Floats& values, Rank rank) = 0;
  /// Sums of encoded values, as a receiver or a relay makes them.
  virtual Floats combine(const std::vector<std::byte>& a, const std::vector<std::byte>& b) = 0;
  /// Elements that did not travel become 0.
  virtual Floats decode(const Floats& combined) = 0;
  virtual bool travels(std::uint32_t element, Rank rank) = 0;
};

/// identity and cast.
class Whole : public Codec {
 public:
  explicit Whole(WireElement element) : element_(element) {}
  std::vector<std::byte> encode(const Floats& values, Rank) override {
    std::vector<std::byte> out(values.size() * bytes_of(element_));
    kernels::encode(element_, out.data(), values.data(), values.size());
    return out;
  }
  Floats combine(const std::vector<std::byte>& a, const std::vector<std::byte>& b) override {
    Floats out(a.size() / bytes_of(element_));
    kernels::assign(element_, out.data(), a.data(), out.size());
    kernels::add(element_, out.data(), b.data(), out.size());
    return out;
  }
  Floats decode(const Floats& combined) override { return combined; }
  bool travels(std::uint32_t, Rank) override { return true; }

 private:
  WireElement element_;
};

/// Slim-DP: the round's coordinates, as float32.
class Slim final : public Codec {
 public:
  explicit Slim(const SlimShares& shares) : coordinates_(kElements, shares, 3) {}
  void next() override {
    coordinates_.next(Floats(kElements, 1.0F), Floats(kElements, 0.0F));
    chosen_ = {coordinates_.indices().begin(), coordinates_.indices().end()};
  }
  std::vector<std::byte> encode(const Floats& values, Rank rank) override {
    Floats part;
    for (const auto c : coordinates_.indices()) part.push_back(values[c]);
    return inner_.encode(part, rank);
  }
  Floats combine(const std::vector<std::byte>& a, const std::vector<std::byte>& b) override {
    return inner_.combine(a, b);
  }
  Floats decode(const Floats& combined) override {
    Floats out(kElements, 0.0F);
    for (std::uint32_t i = 0; i < combined.size(); ++i) {
      out[coordinates_.indices()[i]] = combined[i];
    }
    return out;
  }
  bool travels(std::uint32_t element, Rank) override { return chosen_.contains(element); }

 private:
  SlimCoordinates coordinates_;
  Whole inner_{WireElement::f32};
  std::set<std::uint32_t> chosen_;
};

struct CodecRow {
  std::string name;
  std::function<std::unique_ptr<Codec>()> make;
  double bytes = 1.0;  ///< Of full float32.
  double error = 0.0;  ///< Of each number, relative to it.
  /// Every element has travelled after so many rounds.
  std::uint32_t rounds = 1;
};

std::vector<CodecRow> codecs() {
  const auto whole = [](WireElement element) {
    return [element] { return std::make_unique<Whole>(element); };
  };
  const auto slim = [](double alpha, double beta) {
    return [=] { return std::make_unique<Slim>(SlimShares{alpha, beta, 5}); };
  };
  // Half a unit in the last place of 8 and of 11 bits. Slim: two walks of the explorer.
  return {{"identity", whole(WireElement::f32)},
          {"cast:bf16", whole(WireElement::bf16), 0.5, 0x1p-8},
          {"cast:fp16", whole(WireElement::f16), 0.5, 0x1p-11},
          {"slim:0.3,0.15", slim(0.3, 0.15), 0.3, 0.0, 14},
          {"slim:0.1,0", slim(0.1, 0.0), 0.1, 0.0, 22}};
}

Floats random_values(SplitMix64& random) {
  Floats out(kElements);
  for (auto& x : out) x = static_cast<float>(random.unit() * 4 - 2);
  return out;
}

TEST(CodecLaws, SumsOfEncodedNumbersAreTheSumsWithinTheDeclaredError) {
  SplitMix64 random(1);
  for (const auto& row : codecs()) {
    const auto codec = row.make();
    double worst = 0.0;
    for (int trial = 0; trial < 50; ++trial) {
      codec->next();
      const auto a = random_values(random), b = random_values(random);
      const auto sum = codec->decode(codec->combine(codec->encode(a, 0), codec->encode(b, 1)));
      ASSERT_EQ(sum.size(), kElements);
      for (std::uint32_t i = 0; i < kElements; ++i) {
        if (!codec->travels(i, 0) && !codec->travels(i, 1)) {
          ASSERT_EQ(sum[i], 0.0F);
          continue;
        }
        const double exact = (codec->travels(i, 0) ? static_cast<double>(a[i]) : 0.0) +
                             (codec->travels(i, 1) ? static_cast<double>(b[i]) : 0.0);
        const double size =
            std::abs(static_cast<double>(a[i])) + std::abs(static_cast<double>(b[i]));
        const double off = std::abs(static_cast<double>(sum[i]) - exact);
        // Adding rounds to a float32 besides.
        ASSERT_LE(off, size * row.error + std::abs(exact) * 0x1p-24) << row.name;
        worst = std::max(worst, off / size);
      }
    }
    EXPECT_GE(worst, row.error / 4) << row.name << " declares more error than it makes";
  }
}

TEST(CodecLaws, BytesAreTheDeclaredShare) {
  SplitMix64 random(2);
  for (const auto& row : codecs()) {
    const auto codec = row.make();
    codec->next();
    const auto bytes = static_cast<double>(codec->encode(random_values(random), 1).size());
    EXPECT_NEAR(bytes, row.bytes * 4 * kElements, 4.0) << row.name;
  }
}

TEST(CodecLaws, EveryElementTravelsWithinTheDeclaredRounds) {
  for (const auto& row : codecs()) {
    const auto codec = row.make();
    std::vector<std::uint32_t> last(kElements, 0);
    for (std::uint32_t round = 1; round <= 10 * row.rounds; ++round) {
      codec->next();
      for (std::uint32_t i = 0; i < kElements; ++i) {
        if (codec->travels(i, 0)) last[i] = round;
        ASSERT_LT(round - last[i], row.rounds) << row.name << ", element " << i;
      }
    }
  }
}

}  // namespace
}  // namespace selmcast

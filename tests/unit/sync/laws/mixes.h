// The mixes under test: every implementation of the Mix axis stands once in mixes(). To add one,
// write a Mixer and a row; the laws in mix_laws_test.cc then hold for it or it says why not.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sync/mix/accumulator.h"
#include "sync/steps/delta_exchange.h"
#include "sync/steps/stale_merge.h"

namespace selmcast::laws {

using Floats = std::vector<float>;
/// Whom each rank hears in a round.
using Senders = std::vector<std::vector<Rank>>;

/// All ranks' halves of one mix.
class Mixer {
 public:
  virtual ~Mixer() = default;
  /// One round without any step of the ranks, all frames delivered.
  virtual void round(std::vector<Floats>& models, const Senders& heard) = 0;
};

/// What the driver does: a round of streams, which hold the mixed result afterwards.
class EngineRounds {
 public:
  struct How {
    MixKind mix = MixKind::average;
    bool deterministic = false;
    WireElement element = WireElement::f32;
    double gamma = 0.9;
  };
  static constexpr std::uint32_t kFramePayload = 40;

  EngineRounds(const How& how, std::size_t ranks, std::size_t elements)
      : how_(how), shape_{elements * bytes_of(how.element), kFramePayload, 4} {
    for (std::size_t r = 0; r < ranks; ++r) {
      std::optional<PairCredit> credit;
      if (how.mix == MixKind::age) {
        credit.emplace(static_cast<std::uint32_t>(ranks), how.gamma);
      }
      accumulators_.emplace_back(shape_, how.mix, how.deterministic, how.element,
                                 std::move(credit));
    }
  }
  const StreamShape& shape() const { return shape_; }

  /// `lost(frame, sender, receiver)` says what does not arrive.
  void round(const std::vector<std::span<float>>& streams, const Senders& heard,
             const std::function<bool(std::uint32_t, Rank, Rank)>& lost = {}) {
    std::vector<std::vector<std::byte>> sent;
    for (const auto stream : streams) {
      sent.emplace_back(shape_.bytes);
      kernels::encode(how_.element, sent.back().data(), stream.data(), stream.size());
    }
    for (Rank r = 0; r < streams.size(); ++r) {
      accumulators_[r].begin(1, streams.size(), heard[r]);
      for (const Rank s : heard[r]) {
        bool whole = true;
        for (std::uint32_t f = 0; f < shape_.frames(); ++f) {
          if (lost && lost(f, s, r)) {
            whole = false;
            continue;
          }
          const std::span payload(sent[s].data() + shape_.offset_of(f), shape_.length_of(f));
          accumulators_[r].add(f, s, payload, sent[r].data());
        }
        if (whole) accumulators_[r].complete(s);
      }
      accumulators_[r].finish(streams[r].data(), sent[r].data());
    }
  }

 private:
  How how_;
  StreamShape shape_;
  std::vector<Accumulator> accumulators_;
};

class Plain final : public Mixer {
 public:
  Plain(const EngineRounds::How& how, const std::vector<Floats>& models)
      : rounds_(how, models.size(), models[0].size()) {}
  void round(std::vector<Floats>& models, const Senders& heard) override {
    rounds_.round({models.begin(), models.end()}, heard);
  }

 private:
  EngineRounds rounds_;
};

class Compensated final : public Mixer {
 public:
  Compensated(bool deterministic, std::vector<Floats>& models)
      : rounds_({MixKind::average, deterministic}, models.size(), 2 + models[0].size()) {
    for (auto& model : models) exchanges_.emplace_back(model, 1.5, std::nullopt, 1);
  }
  void round(std::vector<Floats>&, const Senders& heard) override {
    std::vector<std::span<float>> streams;
    for (auto& exchange : exchanges_) {
      exchange.depart(false);
      streams.push_back(exchange.stream());
    }
    rounds_.round(streams, heard);
    for (auto& exchange : exchanges_) {
      exchange.arrive();
    }
  }

 private:
  EngineRounds rounds_;
  std::vector<DeltaExchange> exchanges_;
};

class Stale final : public Mixer {
 public:
  /// `steps` 0: the plain mean, as at the end of a job.
  Stale(const EngineRounds::How& how, std::uint32_t steps, std::vector<Floats>& models)
      : rounds_(how, models.size(), models[0].size()), steps_(steps) {
    for (auto& model : models) merges_.emplace_back(model);
  }
  void round(std::vector<Floats>&, const Senders& heard) override {
    std::vector<std::span<float>> streams;
    for (auto& merge : merges_) {
      merge.depart();
      streams.push_back(merge.stream());
    }
    rounds_.round(streams, heard);
    for (auto& merge : merges_) {
      if (steps_ == 0) {
        merge.replace();
      } else {
        merge.arrive(static_cast<std::uint32_t>(merges_.size()), steps_);
      }
    }
  }

 private:
  EngineRounds rounds_;
  std::uint32_t steps_;
  std::vector<StaleMerge> merges_;
};

struct MixRow {
  using Make = std::function<std::unique_ptr<Mixer>(std::vector<Floats>& models)>;
  std::string name;
  Make make;
  Make without_lag;         ///< The same without delay or reserve: must be the plain mean of all.
  double step = 0.0;        ///< Half a unit in the last place of numbers around 1 as they travel.
  bool keeps_mean = true;   ///< Over all ranks, when all hear all.
  bool keeps_equal = true;  ///< Ranks that agree stay as they are, bit for bit.
  bool keeps_zero_sign = true;
  bool partial = true;       ///< May hear some ranks only.
  bool regular_mean = true;  ///< Keeps the mean too when all in- and out-degrees are equal.
};

inline void add_plain(std::vector<MixRow>& out, bool deterministic, WireElement element,
                      const std::string& suffix, double step) {
  const auto plain = [=](MixKind mix, double gamma) -> MixRow::Make {
    return [=](std::vector<Floats>& models) {
      return std::make_unique<Plain>(EngineRounds::How{mix, deterministic, element, gamma}, models);
    };
  };
  const auto stale = [=](std::uint32_t steps) -> MixRow::Make {
    return [=](std::vector<Floats>& models) {
      return std::make_unique<Stale>(EngineRounds::How{MixKind::average, deterministic, element},
                                     steps, models);
    };
  };
  out.push_back({"average" + suffix, plain(MixKind::average, 0), plain(MixKind::average, 0), step});
  // Rounds own parameters as they travel, so that all ranks get the same bits; and sums before it
  // divides. A mean of 16-bit numbers keeps only the mean of what they were rounded to.
  out.push_back({.name = "sgd" + suffix,
                 .make = plain(MixKind::sgd, 0),
                 .without_lag = plain(MixKind::sgd, 0),
                 .step = step,
                 .keeps_mean = element == WireElement::f32,
                 .keeps_equal = false,
                 .partial = false});
  out.push_back({.name = "age:0.9" + suffix,
                 .make = plain(MixKind::age, 0.9),
                 .without_lag = plain(MixKind::age, 1.0),
                 .step = step,
                 .regular_mean = false});
  out.push_back({.name = "stale:2" + suffix,
                 .make = stale(2),
                 .without_lag = stale(0),
                 .step = step,
                 .partial = false});
}

inline std::vector<MixRow> mixes() {
  std::vector<MixRow> out;
  for (const bool deterministic : {false, true}) {
    const std::string suffix = deterministic ? ", fixed point" : "";
    add_plain(out, deterministic, WireElement::f32, suffix, 0.0);
    add_plain(out, deterministic, WireElement::bf16, suffix + ", bf16", 0x1p-8);
    add_plain(out, deterministic, WireElement::f16, suffix + ", fp16", 0x1p-11);
    const MixRow::Make compensated = [=](std::vector<Floats>& models) {
      return std::make_unique<Compensated>(deterministic, models);
    };
    out.push_back({.name = "compensate" + suffix,
                   .make = compensated,
                   .without_lag = compensated,
                   .keeps_zero_sign = false,
                   .partial = false});
  }
  return out;
}

}  // namespace selmcast::laws

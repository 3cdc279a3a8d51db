// The handwritten digits: reading them, and dividing them into a test set and one shard a worker.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace selmcast {

/// Images of one size with a class each. Samples are addressed by their index.
struct Dataset {
  static constexpr std::uint32_t kSide = 8;
  static constexpr std::uint32_t kFeatures = kSide * kSide;  ///< Pixels.
  static constexpr std::uint32_t kClasses = 10;
  std::string name = "digits";       ///< For people; which data these are.
  std::vector<float> pixels;         ///< size() x kFeatures, row by row.
  std::vector<std::uint8_t> labels;  ///< size() classes, each below kClasses.

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(labels.size()); }
  std::span<const float> image(std::uint32_t sample) const {
    return std::span(pixels).subspan(std::size_t{sample} * kFeatures, kFeatures);
  }
};

/// Reads lines of 64 integers 0..16 and a class 0..9, separated by commas (train/data/README.md). A
/// carriage return before a line's end and a missing last line break are accepted, nothing else: no
/// header, blanks, signs or empty lines. `name` stands in messages. Errors (bad_input): name, line,
/// column, what was found, what is allowed; or no line at all.
Result<Dataset> parse_digits(std::string_view text, std::string_view name);
/// parse_digits() of a file of at most 64 MiB. Errors: bad_input, naming the file.
Result<Dataset> load_digits(const std::string& path);
/// Path of the data set shipped with the program: below the prefix it was installed in, otherwise
/// in the source tree it was built from. Errors: unavailable, with the places looked at.
Result<std::string> find_digits();
/// What `--data` names: nothing or `digits` the shipped digits, `generated[:N]`
/// generate_clusters(), otherwise a file for load_digits(). Errors: bad_input or unavailable, in
/// one line.
Result<Dataset> load_data(const std::string& source);

/// A task of any size whose best possible accuracy is known within bounds (train/data/README.md
/// states formula and bounds): `samples` points around 20 centres and their opposites, two of each
/// per class, so that no class is on one side of a plane; a hundredth of the labels is wrong.
/// Sample i does not depend on how many there are, nor on the machine.
Dataset generate_clusters(std::uint32_t samples);

/// A division of the samples into two parts, as indices in ascending order.
struct TrainTestSplit {
  std::vector<std::uint32_t> train;
  std::vector<std::uint32_t> test;  ///< A fifth of the samples, rounded up.
};

/// Draws a stratified test set: every class gives its share, rounded by largest remainders. The
/// same seed gives the same split on every machine.
TrainTestSplit split_train_test(const Dataset& data, std::uint64_t seed);

/// How the training samples are divided among the workers.
enum class ShardKind : std::uint8_t {
  skew,  ///< By class: each worker sees few classes (2-3 when there are 6 workers or more).
  iid,   ///< At random.
};
std::string_view to_string(ShardKind kind) noexcept;

/// One list of sample indices a worker; sizes differ by at most two, every sample of `train` is in
/// exactly one shard. Needs 1 <= workers <= train.size() / 2.
///
/// skew lays the samples down class after class. When a shard is larger than a class, shards are
/// cut from that in one piece. Otherwise twice as many pieces are cut, and a piece that straddles
/// two classes is put together with one that does not, the rest with a far-away one, so that no
/// worker sees a single class.
std::vector<std::vector<std::uint32_t>> make_shards(const Dataset& data,
                                                    std::span<const std::uint32_t> train,
                                                    std::uint32_t workers, ShardKind kind,
                                                    std::uint64_t seed);

}  // namespace selmcast

// Axis codec: which bytes of the parameters travel.
#pragma once

#include <cstdint>
#include <optional>

#include "base/wire_element.h"
#include "plan/axes/row.h"

namespace selmcast {

enum class CodecKind : std::uint8_t { identity, cast, split, slim };

/// Shares of the parameters that travel under Slim-DP: `alpha` in a round, of which `beta` is the
/// core. 0 <= beta <= alpha <= 1.
struct SlimShares {
  double alpha = 0.3;
  double beta = 0.15;
  std::uint32_t every = 20;  ///< Rounds after which the core is chosen anew; at least 1.

  bool operator==(const SlimShares&) const = default;
};

struct Codec {
  CodecKind kind = CodecKind::identity;
  WireElement element = WireElement::f32;  ///< Another one: cast.
  std::optional<SlimShares> slim{};        ///< Of slim.

  bool operator==(const Codec&) const = default;
  static AxisTable<Codec> axis() noexcept;
};

}  // namespace selmcast

// Samples of the generated data set; tests/portable/generated_data_test.py computes these lines
// from the formula, without any code of the project.
#pragma once

#include <array>
#include <cstdint>

namespace selmcast::testing {

struct GeneratedSample {
  std::uint32_t index;
  std::uint8_t label;
  std::array<float, 4> pixels;  ///< Numbers 0, 1, 31 and 63.
};

inline constexpr std::array<GeneratedSample, 7> kGeneratedSamples{{
    // clang-format off
    {0, 9, {-1.14083982F, -0.382338464F, 1.19398677F, 0.658765614F}},
    {1, 4, {0.566086292F, 0.281351328F, 0.921643794F, -0.688677013F}},
    {7, 3, {0.391641796F, -0.575738847F, 0.516351521F, -0.264144838F}},
    {83, 3, {0.171074003F, 0.565891325F, -0.749226332F, 0.19271481F}},
    {137, 1, {-0.29757756F, -0.487886429F, 0.501081645F, -1.01023281F}},
    {19999, 6, {-0.042096436F, -0.787971914F, -0.0785616487F, 0.0574415289F}},
    {123456, 6, {0.277137607F, 0.638730288F, -0.844129205F, -0.0651724488F}},
    // clang-format on
}};

}  // namespace selmcast::testing

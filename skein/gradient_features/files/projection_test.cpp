// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/gradient_features/files/projection.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "skein/core/error.h"
#include "skein/core/testing.h"
#include "skein/gradient_features/files/projection_signs.h"

namespace skein::gradient_features {
namespace {

using Bits = std::array<uint32_t, 4>;

Bits words_of(uint64_t stream, uint64_t element, uint64_t group) {
  const auto bits = random::sign_bits(stream, element, group);
  return {bits.word[0], bits.word[1], bits.word[2], bits.word[3]};
}

// docs/gradient_format.md: these never change.
TEST(Projection, TestVectors) {
  const auto stream = projection_stream(0, "w");
  EXPECT_EQ(stream, 0xdc84590222e63cdcU);
  EXPECT_EQ(words_of(stream, 0, 0), (Bits{0x2a050752, 0x0c761c88, 0x78abd3cb, 0x7acc7565}));
  EXPECT_EQ(words_of(stream, 1, 0), (Bits{0xa29c1af8, 0x9fa3daf4, 0x4d11513b, 0xfa4709cb}));
  EXPECT_EQ(words_of(stream, 0, 1), (Bits{0xfd48f22b, 0x55f5b600, 0xda7407c6, 0x3f59aba5}));
  EXPECT_EQ(words_of(stream, uint64_t{1} << 32, 63),
            (Bits{0x8a1d3b1a, 0xb4fbc77f, 0xb0918725, 0xee5a5148}));
  EXPECT_EQ(projection_stream(7, "w"), 0x4662b350466ab8d4U);
  EXPECT_EQ(projection_stream(0, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"),
            0xc8c63349ceccf9c4U);
  std::string signs;
  for (uint64_t column = 0; column < 8; ++column) {
    signs += random::projection_sign(stream, 0, column) > 0 ? '+' : '-';
  }
  EXPECT_EQ(signs, "-+--+-+-");
}

// Likewise.
TEST(Projection, TestVectorsOfFactors) {
  const auto left = factor_stream(0, "w", Side::kLeft), right = factor_stream(0, "w", Side::kRight);
  EXPECT_EQ(left, 0xeba0828e21666232U);
  EXPECT_EQ(words_of(left, 0, 0), (Bits{0xa6e6f79c, 0x1f2bb9af, 0x17ee9d84, 0x70120b44}));
  EXPECT_EQ(words_of(left, 1, 0), (Bits{0x7da3dac6, 0x70c9ad5a, 0x2f7101e8, 0x320c09d5}));
  EXPECT_EQ(right, 0xfbe59039eb390b09U);
  EXPECT_EQ(words_of(right, 0, 0), (Bits{0xfed1d099, 0x89299534, 0xf9313600, 0xd82335cc}));
  EXPECT_EQ(words_of(right, 0, 1), (Bits{0xc892416d, 0x234f3a31, 0x1c1e568d, 0xdf4fd8f5}));
  EXPECT_EQ(factor_stream(7, "w", Side::kLeft), 0xa1b7116b953e4723U);
}

// docs/gradient_format.md.
TEST(Projection, SidesAreThoseOfTheRule) {
  struct Case {
    std::vector<int64_t> shape;
    int64_t share, left, right;
  };
  const Case cases[] = {
      {{8, 2048}, 64, 8, 8},    {{8, 2048}, 1024, 8, 128},
      {{2048, 2048}, 67, 8, 8}, {{2048, 2048}, 72, 8, 9},
      {{2048, 1024}, 72, 9, 8}, {{2048}, 64, 64, 1},
      {{3, 4}, 1024, 3, 4},     {{5}, 1, 1, 1},
      {{4, 4}, 3, 1, 3},        {{1 << 20, 1 << 20}, 1 << 28, 1 << 14, 1 << 14},
  };
  for (const auto& [shape, share, left, right] : cases) {
    std::vector<ProjectedParameter> parameters = {{"w", shape}};
    choose_sides(parameters, share);
    EXPECT_EQ(parameters[0].sides.left, left) << share;
    EXPECT_EQ(parameters[0].sides.right, right) << share;
  }
  // All have an equal share, and what one cannot use no other gets.
  std::vector<ProjectedParameter> parameters = {{"a", {100, 100}}, {"b", {3}}, {"c", {100, 100}}};
  choose_sides(parameters, 50);
  EXPECT_EQ(columns_of(parameters), 16 + 3 + 16);
}

TEST(Projection, FewerColumnsThanParametersAreRefused) {
  std::vector<ProjectedParameter> parameters(3, {"w", {4, 4}});
  choose_sides(parameters, 3);
  EXPECT_EQ(columns_of(parameters), 3);
  const auto why = refusal<UserError>([&] { choose_sides(parameters, 2); });
  EXPECT_PRED2(contains, why, "--gradient_projection_dimension 2 is too small");
  EXPECT_PRED2(contains, why, "give 3 or more");
}

TEST(Projection, DigestIsThatOfTheText) {
  EXPECT_EQ(projection_digest(ProjectionKind::kDense, 0, {{"w", {2, 3}}, {"b", {3}}}),
            "6e6b5dc6777429eca088c92ef3e1ce0b");
  const auto digest_of = [](ProjectionKind kind, uint64_t seed, const char* name) {
    return projection_digest(kind, seed, {{name, {2}}});
  };
  const auto one = digest_of(ProjectionKind::kDense, 0, "w");
  EXPECT_NE(one, digest_of(ProjectionKind::kFactorised, 0, "w"));
  EXPECT_NE(one, digest_of(ProjectionKind::kDense, 1, "w"));
  EXPECT_NE(one, digest_of(ProjectionKind::kDense, 0, "v"));
  std::vector<ProjectedParameter> parameters = {{"w", {2, 3}}, {"b", {3}}};
  choose_sides(parameters, 8);
  EXPECT_EQ(projection_digest(ProjectionKind::kFactorised, 0, parameters),
            "2790929ff356cc9d27b505c1f1ac2d0a");
  choose_sides(parameters, 2);
  EXPECT_NE(projection_digest(ProjectionKind::kFactorised, 0, parameters),
            "2790929ff356cc9d27b505c1f1ac2d0a");
}

TEST(Projection, WordsOfKinds) {
  for (const auto kind :
       {ProjectionKind::kDense, ProjectionKind::kFactorised, ProjectionKind::kNone}) {
    EXPECT_EQ(projection_kind(word_of(kind)), kind);
  }
  EXPECT_FALSE(projection_kind("sparse"));
}

TEST(ProjectionSigns, EveryTileIsThatOfTheFormula) {
  const auto stream = projection_stream(3, "layer.weight");
  const SignTile tiles[] = {{0, 1, 0, 1},
                            {0, 33, 0, 128},
                            {5, 9, 3, 200},
                            {17, 40, 128, 384},
                            {100, 101, 0, 5},
                            {7, 39, 127, 129},
                            {0, 0, 0, 128},
                            {2, 18, 256, 256},
                            {(int64_t{1} << 32) - 5, (int64_t{1} << 32) + 20, 0, 130}};
  for (const auto& tile : tiles) {
    std::vector<float> signs(static_cast<size_t>(tile.elements() * tile.columns()) + 1, 9);
    fill_signs(stream, tile, signs.data());
    size_t place = 0;
    for (int64_t e = tile.first_element; e < tile.last_element; ++e) {
      for (int64_t c = tile.first_column; c < tile.last_column; ++c) {
        ASSERT_EQ(signs[place++], random::projection_sign(stream, static_cast<uint64_t>(e),
                                                          static_cast<uint64_t>(c)))
            << e << " " << c;
      }
    }
    EXPECT_EQ(signs.back(), 9);  // nothing behind the tile
  }
}

// Means of +1 and -1 over many draws, along both axes: within five standard errors.
TEST(ProjectionSigns, AreBalanced) {
  constexpr int64_t kSide = 512;
  std::vector<float> signs(kSide * kSide);
  fill_signs(projection_stream(0, "w"), {0, kSide, 0, kSide}, signs.data());
  double all = 0;
  for (int64_t i = 0; i < kSide; ++i) {
    double row = 0, column = 0, neighbours = 0;
    for (int64_t j = 0; j < kSide; ++j) {
      row += signs[static_cast<size_t>(i * kSide + j)];
      column += signs[static_cast<size_t>(j * kSide + i)];
      neighbours += signs[static_cast<size_t>(i * kSide + j)] *
                    signs[static_cast<size_t>((i + 1) % kSide * kSide + j)];
    }
    all += row;
    EXPECT_LT(std::abs(row), 5 * std::sqrt(kSide));
    EXPECT_LT(std::abs(column), 5 * std::sqrt(kSide));
    EXPECT_LT(std::abs(neighbours), 5 * std::sqrt(kSide));
  }
  EXPECT_LT(std::abs(all), 5 * kSide);
}

}  // namespace
}  // namespace skein::gradient_features

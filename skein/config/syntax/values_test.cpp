// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/config/syntax/values.h"

#include <gtest/gtest.h>

#include "skein/config/syntax/suggest.h"

namespace skein::config {
namespace {

TEST(Values, Integers) {
  struct Case {
    const char* text;
    std::optional<int64_t> expected;
  };
  const Case cases[] = {
      {"42", 42},
      {"-1", -1},
      {"+7", 7},
      {"0", 0},
      {"2e8", 200'000'000},
      {"5e+2", 500},
      {"1.5e3", 1500},
      {"1_000", 1000},
      {"25MiB", 25 << 20},
      {"25 MiB", 25 << 20},
      {"0.5KiB", 512},
      {"3kB", 3000},
      {"9223372036854775807", INT64_MAX},
      {"9223372036854775808", std::nullopt},
      {"1e30", std::nullopt},
      {"017", std::nullopt},
      {"-08", std::nullopt},
      {"0x10", std::nullopt},
      {"1.5", std::nullopt},
      {"1__0", std::nullopt},
      {"_1", std::nullopt},
      {"1_", std::nullopt},
      {"", std::nullopt},
      {"MiB", std::nullopt},
      {"ten", std::nullopt},
      {"4 2", std::nullopt},
      {"5%", std::nullopt},
  };
  for (const auto& c : cases) EXPECT_EQ(parse_integer(c.text), c.expected) << c.text;
}

TEST(Values, Reals) {
  struct Case {
    const char* text;
    std::optional<double> expected;
  };
  const Case cases[] = {
      {"1e-4", 1e-4},
      {"1E-4", 1e-4},
      {"5%", 0.05},
      {".5", 0.5},
      {"-2", -2},
      {"1_000.5", 1000.5},
      {"5e-5", 5e-5},
      {"nan", std::nullopt},
      {"inf", std::nullopt},
      {"1e999", std::nullopt},
      {"1e-4x", std::nullopt},
      {"", std::nullopt},
      {"%", std::nullopt},
      {"1,5", std::nullopt},
  };
  for (const auto& c : cases) EXPECT_EQ(parse_real(c.text), c.expected) << c.text;
}

TEST(Values, Booleans) {
  for (const auto* text : {"true", "True", "yes", "on", "ON", "1"})
    EXPECT_EQ(parse_bool(text), true);
  for (const auto* text : {"false", "no", "off", "Off", "0"}) EXPECT_EQ(parse_bool(text), false);
  for (const auto* text : {"", "maybe", "y", "2"})
    EXPECT_EQ(parse_bool(text), std::nullopt) << text;
}

TEST(Values, RealsPrintSoThatTheyReadBackExactly) {
  for (const double value : {5e-5, 0.1, 1.0 / 3, 1e-8, 3e-7, 500.0, 0.999, 1e300}) {
    EXPECT_EQ(parse_real(to_text(value)), value);
  }
}

TEST(Suggest, NearestFirstAndAtMostThree) {
  EXPECT_EQ(did_you_mean("max_stpes", {"seed", "max_steps"}), "; did you mean 'max_steps'?");
  EXPECT_EQ(did_you_mean("save_stepss", {"save_steps", "save_step", "seed"}),
            "; did you mean 'save_steps' or 'save_step'?");
  EXPECT_EQ(did_you_mean("abcdef", {"abcdeg", "abcdeh", "abcdei", "abcdej"}),
            "; did you mean 'abcdeg', 'abcdeh' or 'abcdei'?");
  EXPECT_EQ(did_you_mean("colour", {"learning_rate"}), "");
}

}  // namespace
}  // namespace skein::config

// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/adapter/module_pattern.h"

#include <gtest/gtest.h>

#include "skein/core/error.h"
#include "skein/core/testing.h"

namespace skein::adapter {
namespace {

using Reach = ModulePattern::Reach;

bool whole(const char* pattern, const char* name) {
  return ModulePattern(pattern, Reach::kWhole).matches(name);
}

bool ending(const char* pattern, const char* name) {
  return ModulePattern(pattern, Reach::kEnding).matches(name);
}

TEST(ModulePattern, MatchesTheWholeName) {
  EXPECT_TRUE(whole(R"(.*\.q_proj)", "model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(whole("q_proj", "model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(whole(R"(.*\.q_proj)", "model.layers.0.self_attn.q_proj.x"));
  // The first alternative matches a prefix: fullmatch goes on to the second.
  EXPECT_TRUE(whole("a|ab", "ab"));
  EXPECT_TRUE(
      whole(R"(model\.layers\.(?:[0-3]|1\d)\.mlp\.(gate|up)_proj)", "model.layers.12.mlp.up_proj"));
  EXPECT_TRUE(
      whole(R"((?:.*?(?:attn|mlp).*?(?:k_proj|q_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\.x))",
            "model.layers.3.x"));
}

TEST(ModulePattern, MatchesAnEnding) {
  EXPECT_TRUE(ending("q_proj", "model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(ending("q_proj", "q_proj"));
  EXPECT_FALSE(ending("proj", "model.q_proj"));
  EXPECT_TRUE(ending(R"(layers\.0\..*)", "model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(ending("a|b", "model.b"));
  EXPECT_FALSE(ending("^q_proj", "model.q_proj"));
  EXPECT_TRUE(ending("^model.q_proj", "model.q_proj"));
}

// Each has another meaning, or none, in Python.
TEST(ModulePattern, RefusesWhatPythonReadsDifferently) {
  for (const char* pattern :
       {R"(\1)", R"(a\Z)", R"(\Qa\E)", "(?i)a",       "(?R)", "(*ACCEPT)", "(?>a)",
        "a{,3}", "a{x}",   "a{",       "[[:alpha:]]", "[a",   R"(\)",      "(?#x)",
        "a++",   "a{2}+",  "\xc3\xa9", "a\n",         "(",    "*",         "[b-a]"}) {
    EXPECT_THROW(whole(pattern, "a"), UserError) << pattern;
  }
  EXPECT_PRED2(contains, refusal<UserError>([] { whole("(?i)q", "q"); }), "'(?i' (at character 1)");
}

TEST(ModulePattern, EndsAMatchThatTakesTooLong) {
  const std::string name = std::string(64, 'a') + "b";
  const auto why =
      refusal<UserError>([&] { ModulePattern("(a|aa)+", Reach::kWhole).matches(name); });
  EXPECT_PRED2(contains, why, "takes too long");
  EXPECT_THROW(ModulePattern(std::string(ModulePattern::kMaxBytes + 1, 'a'), Reach::kWhole),
               UserError);
}

}  // namespace
}  // namespace skein::adapter

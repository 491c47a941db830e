// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/runs/groups.h"

#include <memory>
#include <utility>

#include "skein/core/error.h"
#include "skein/data/runs/run_writer.h"

namespace skein::data {
namespace {

// A prompt and an answer to it.
struct Joined {
  std::vector<int64_t> tokens, targets;
};

Joined join(const std::vector<int64_t>& prompt, const std::vector<int64_t>& answer,
            const std::vector<uint8_t>& foreign) {
  Joined joined{prompt, std::vector<int64_t>(prompt.size() - 1, tensor::kIgnore)};
  joined.tokens.insert(joined.tokens.end(), answer.begin(), answer.end());
  for (size_t i = 0; i < answer.size(); ++i) {
    const bool is_foreign = !foreign.empty() && foreign[i] != 0;
    joined.targets.push_back(is_foreign ? tensor::kIgnore : answer[i]);
  }
  joined.targets.push_back(tensor::kIgnore);
  return joined;
}

}  // namespace

tensor::HostBatch make_groups(std::span<const Group> groups, bool shares) {
  RunWriter run;
  auto answers = std::make_shared<tensor::HostAnswers>();
  answers->alone = true;
  for (const auto& group : groups) {
    SKEIN_CHECK(!group.prompt.empty(), "an answer stands behind a token");
    SKEIN_CHECK(group.documents.size() == group.answers.size(), "a key for each answer");
    std::vector<Joined> joined;
    for (size_t i = 0; i < group.answers.size(); ++i) {
      joined.push_back(join(group.prompt, group.answers[i],
                            group.foreign.empty() ? std::vector<uint8_t>() : group.foreign[i]));
    }
    std::vector<DocumentView> documents;
    for (size_t i = 0; i < joined.size(); ++i) {
      documents.push_back({joined[i].tokens, joined[i].targets, group.documents[i]});
      answers->documents.push_back(std::ssize(answers->documents));
      answers->samples.push_back(group.documents[i]);
    }
    run.add_group(documents, shares ? std::ssize(group.prompt) : 0);
  }
  return run.finish(std::move(answers));
}

}  // namespace skein::data

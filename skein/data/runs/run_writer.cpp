// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/data/runs/run_writer.h"

#include <algorithm>
#include <utility>

#include "skein/core/error.h"

namespace skein::data {
namespace {

using tensor::kIgnore;

bool has_target(int64_t target) { return target != kIgnore; }

DocumentView part_of(const DocumentView& document, size_t begin, size_t count) {
  return {document.tokens.subspan(begin, count), document.targets.subspan(begin, count),
          document.number};
}

}  // namespace

int64_t shared_length(int64_t prompt, int64_t answers) {
  return answers < 2 ? 0 : std::max<int64_t>(0, prompt - 1);
}

void RunWriter::append(const DocumentView& document, int32_t continues) {
  const auto& [tokens, targets, number] = document;
  SKEIN_CHECK(!tokens.empty() && tokens.size() == targets.size(), "a target for each token");
  batch_.tokens.insert(batch_.tokens.end(), tokens.begin(), tokens.end());
  batch_.targets.insert(batch_.targets.end(), targets.begin(), targets.end());
  batch_.num_targets += std::ranges::count_if(targets, has_target);
  SKEIN_CHECK(batch_.tokens.size() <= INT32_MAX, "a micro-batch has fewer tokens than that");
  batch_.document_ends.push_back(static_cast<int32_t>(batch_.tokens.size()));
  batch_.documents.push_back(number);
  batch_.continues.push_back(continues);
}

void RunWriter::add(const DocumentView& document) {
  places_.push_back(std::ssize(batch_.documents));
  append(document, -1);
}

void RunWriter::add_group(std::span<const DocumentView> documents, int64_t prompt) {
  const auto once = static_cast<size_t>(shared_length(prompt, std::ssize(documents)));
  if (once == 0) {
    for (const auto& document : documents) add(document);
    return;
  }
  const auto first = part_of(documents.front(), 0, once);
  const auto place = static_cast<int32_t>(batch_.documents.size());
  append(first, -1);
  for (const auto& document : documents) {
    SKEIN_CHECK(std::ranges::equal(document.tokens.first(once), first.tokens),
                "documents of a group begin alike");
    SKEIN_CHECK(std::ranges::none_of(document.targets.first(once), has_target),
                "a shared token has no target");
    places_.push_back(std::ssize(batch_.documents));
    append(part_of(document, once, document.tokens.size() - once), place);
  }
}

tensor::HostBatch RunWriter::finish(std::shared_ptr<const tensor::HostAnswers> answers) {
  if (places_.empty()) {
    const std::vector<int64_t> token{0}, target{kIgnore};
    append({token, target, 0}, -1);
  }
  batch_.length = std::ssize(batch_.tokens);
  if (std::ranges::all_of(batch_.continues, [](int32_t before) { return before < 0; })) {
    batch_.continues.clear();
  } else if (answers) {
    auto moved = std::make_shared<tensor::HostAnswers>(*answers);
    for (auto& document : moved->documents) document = places_[static_cast<size_t>(document)];
    answers = std::move(moved);
  }
  batch_.answers = std::move(answers);
  return std::move(batch_);
}

}  // namespace skein::data

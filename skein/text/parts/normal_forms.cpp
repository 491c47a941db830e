// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/text/parts/normal_forms.h"

#include <algorithm>
#include <span>

#include "skein/text/parts/changes.h"
#include "skein/text/parts/unicode.h"

namespace skein::text {
namespace {

void sort_marks(std::span<Change> marks) {
  std::ranges::stable_sort(marks, {},
                           [](const Change& mark) { return combining_class(mark.code); });
}

// The characters of a text taken apart, marks in canonical order.
std::vector<Change> decomposed(std::string_view text, NormalForm form) {
  std::vector<Change> changes;
  size_t marks = 0;  // where the marks behind the last starter begin
  while (!text.empty()) {
    const auto character = first_character(text);
    text.remove_prefix(character.size);
    int taken = 1;
    for (const char32_t code : decomposition(character.code, form)) {
      if (combining_class(code) == 0) {
        sort_marks(std::span(changes).subspan(marks));
        marks = changes.size() + 1;
      }
      changes.push_back({code, taken});
      taken = 0;
    }
  }
  sort_marks(std::span(changes).subspan(std::min(marks, changes.size())));
  return changes;
}

// Puts together what belongs together: a starter and the marks, or the starter, that follow it and
// that nothing between them keeps away.
std::vector<Change> composed(const std::vector<Change>& parts) {
  std::vector<Change> changes;
  size_t starter = SIZE_MAX;  // the last one, in `changes`
  int class_before = 0;       // the class of what stands between it and the next part; 0: nothing
  for (const auto& part : parts) {
    const int own = combining_class(part.code);
    const bool is_free = starter != SIZE_MAX && (class_before == 0 || class_before < own);
    const auto whole = is_free ? composition(changes[starter].code, part.code) : std::nullopt;
    if (whole) {
      changes[starter] = {*whole, changes[starter].taken + part.taken};
      continue;
    }
    if (own == 0) starter = changes.size();
    class_before = own;
    changes.push_back(part);
  }
  return changes;
}

class NormalFormStep final : public Normalizer {
 public:
  explicit NormalFormStep(NormalForm form) : form_(form) {}

  Piece normalize(const Piece& piece, Workspace& workspace) const override {
    if (form_ == NormalForm::kNfc ? is_settled(piece.text) : is_ascii(piece.text)) return piece;
    if (!workspace.tracks()) {
      auto& text = workspace.new_text() = to_normal_form(piece.text, form_);
      return {text, nullptr, piece.begin};
    }
    const auto parts = decomposed(piece.text, form_);
    const bool composes = form_ == NormalForm::kNfc || form_ == NormalForm::kNfkc;
    return changed(piece, composes ? composed(parts) : parts, workspace);
  }

 private:
  NormalForm form_;
};

}  // namespace

std::unique_ptr<Normalizer> read_nfc(const PartReader&, const Json&) {
  return std::make_unique<NormalFormStep>(NormalForm::kNfc);
}
std::unique_ptr<Normalizer> read_nfd(const PartReader&, const Json&) {
  return std::make_unique<NormalFormStep>(NormalForm::kNfd);
}
std::unique_ptr<Normalizer> read_nfkc(const PartReader&, const Json&) {
  return std::make_unique<NormalFormStep>(NormalForm::kNfkc);
}
std::unique_ptr<Normalizer> read_nfkd(const PartReader&, const Json&) {
  return std::make_unique<NormalFormStep>(NormalForm::kNfkd);
}

}  // namespace skein::text

// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.

// Views of boards on their way between nodes. What comes in may have been written by anyone.
#include <algorithm>
#include <limits>

#include "skein/board/board.h"
#include "skein/board/page.h"
#include "skein/core/json.h"

namespace skein::board {
namespace {

using nlohmann::json;

constexpr JsonLimits kLimits{.bytes = uint64_t{256} << 10, .depth = 4, .whole_numbers = true};
constexpr size_t kMaxString = 4096;
constexpr size_t kMaxSamples = 64;

json to_json(const Call& call) {
  return {call.sequence, call.group, call.operation, call.dtype, call.count,
          call.step,     call.site,  call.age_ms,    call.done};
}

// Reads values and remembers whether all were what they had to be.
class Decoder {
 public:
  bool ok = true;

  const json& member(const json& object, const char* name) {
    static const json nothing;
    const auto found = object.find(name);
    ok = ok && found != object.end();
    return ok ? *found : nothing;
  }

  // From 0 to `most`.
  template <typename T = int64_t>
  T number(const json& value, uint64_t most = std::numeric_limits<int64_t>::max()) {
    ok = ok && value.is_number_unsigned() && value.get<uint64_t>() <= most;
    return ok ? static_cast<T>(value.get<uint64_t>()) : T{};
  }

  std::string text(const json& value) {
    ok = ok && value.is_string() && value.get_ref<const std::string&>().size() <= kMaxString;
    return ok ? value.get<std::string>() : "";
  }

  bool flag(const json& value) {
    ok = ok && value.is_boolean();
    return ok && value.get<bool>();
  }

  std::vector<int64_t> numbers(const json& value, size_t most) {
    std::vector<int64_t> out;
    ok = ok && value.is_array() && value.size() <= most;
    for (size_t i = 0; ok && i < value.size(); ++i) out.push_back(number(value[i]));
    return out;
  }

  Call call(const json& row) {
    ok = ok && row.is_array() && row.size() == 9;
    if (!ok) return {};
    return {.sequence = number<uint64_t>(row[0]),
            .group = text(row[1]),
            .operation = text(row[2]),
            .dtype = text(row[3]),
            .count = number<uint64_t>(row[4]),
            .step = number(row[5]),
            .site = text(row[6]),
            .age_ms = number(row[7]),
            .done = flag(row[8])};
  }

  std::vector<Call> calls(const json& rows) {
    std::vector<Call> out;
    ok = ok && rows.is_array() && rows.size() <= kNumCalls;
    for (size_t i = 0; ok && i < rows.size(); ++i) out.push_back(call(rows[i]));
    return out;
  }
};

}  // namespace

std::string encode(const BoardView& view) {
  json calls = json::array();
  for (const auto& call : view.calls) calls.push_back(to_json(call));
  const json text = {{"rank", view.rank},
                     {"pid", view.pid},
                     {"phase", static_cast<uint32_t>(view.phase)},
                     {"step", view.step},
                     {"steps_here", view.steps_here},
                     {"phase_ms", view.phase_ms},
                     {"beat_ms", view.beat_ms},
                     {"progress_ms", view.progress_ms},
                     {"progress", view.progress},
                     {"message", view.message},
                     {"out_of_memory", view.out_of_memory},
                     {"samples", view.samples},
                     {"issued", view.issued},
                     {"calls", std::move(calls)},
                     {"gaps_ms", view.gaps_ms}};
  // A message that was cut may end within a character.
  return text.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<BoardView> decode_board(const std::string& text) {
  const auto parsed = json_if_valid(text, kLimits);
  if (!parsed || !parsed->is_object()) return std::nullopt;
  Decoder in;
  const auto at = [&](const char* name) -> const json& { return in.member(*parsed, name); };
  BoardView view;
  view.rank = in.number<int>(at("rank"), std::numeric_limits<int>::max());
  view.pid = in.number(at("pid"));
  view.phase = in.number<Phase>(at("phase"), kNumPhases - 1);
  view.step = in.number(at("step"));
  view.steps_here = in.number(at("steps_here"));
  view.phase_ms = in.number(at("phase_ms"));
  view.beat_ms = in.number(at("beat_ms"));
  view.progress_ms = in.number(at("progress_ms"));
  view.progress = in.text(at("progress"));
  view.message = in.text(at("message"));
  view.out_of_memory = in.flag(at("out_of_memory"));
  view.samples = in.numbers(at("samples"), kMaxSamples);
  view.issued = in.number<uint64_t>(at("issued"));
  view.calls = in.calls(at("calls"));
  view.gaps_ms = in.numbers(at("gaps_ms"), kNumCalls);
  if (!in.ok) return std::nullopt;
  return view;
}

}  // namespace skein::board

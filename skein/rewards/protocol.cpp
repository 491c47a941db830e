// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/rewards/protocol.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "skein/config/syntax/suggest.h"
#include "skein/core/foreign_text.h"
#include "skein/core/json.h"

namespace skein::rewards {
namespace {

using Json = nlohmann::json;

constexpr JsonLimits kLine{.bytes = kMaxLine, .depth = 8};
constexpr size_t kMaxNames = 64, kMaxMessages = 64, kMaxName = 100;

Json parse_object(std::string_view line, const std::vector<std::string>& keys) try {
  auto object = parse_json(line, kLine);
  if (!object.is_object()) throw BadLine("expected a JSON object");
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(keys, key) != keys.end()) continue;
    const auto near = config::did_you_mean(key, keys);
    throw BadLine(
        fmt::format("unknown key '{}'{}", shown(key),
                    near.empty() ? fmt::format("; expected are {}", fmt::join(keys, ", ")) : near));
  }
  return object;
} catch (const JsonError& error) {
  const bool no_number =
      line.find("NaN") != std::string_view::npos || line.find("Infinity") != std::string_view::npos;
  throw BadLine(no_number ? "expected JSON, which has no NaN and no Infinity"
                          : fmt::format("expected one JSON object ({})", error.what()));
}

const std::string& text_of_key(const Json& value, const char* key) {
  if (!value.is_string()) throw BadLine(fmt::format("'{}' is no text", key));
  return value.get_ref<const std::string&>();
}

// Metrics and files bear these names.
std::string checked_name(const std::string& name) {
  const auto is_plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '-' || c == '.';
  };
  if (name.empty() || name.size() > kMaxName || !std::ranges::all_of(name, is_plain)) {
    throw BadLine(
        fmt::format("the name '{}' is not of letters, digits, '_', '-' and '.', at most {}",
                    shown(name), kMaxName));
  }
  return name;
}

std::optional<double> reward_of(const Json& value) {
  if (value.is_null()) return std::nullopt;
  if (!value.is_number()) throw BadLine("a reward is neither a number nor null");
  const auto reward = value.get<double>();
  if (!std::isfinite(reward)) throw BadLine("a reward is not finite");
  return reward;
}

std::vector<Message> messages_of(const Json& list) {
  if (!list.is_array() || list.empty() || list.size() > kMaxMessages) {
    throw BadLine(fmt::format("'messages' is no list of 1 to {} messages", kMaxMessages));
  }
  std::vector<Message> messages;
  for (const auto& entry : list) {
    if (!entry.is_object() || entry.size() != 2 || !entry.contains("role") ||
        !entry.contains("content")) {
      throw BadLine("a message is an object with 'role' and 'content' alone");
    }
    messages.push_back({.role = text_of_key(entry.at("role"), "role"),
                        .content = text_of_key(entry.at("content"), "content")});
    if (messages.back().role.empty()) throw BadLine("a message without a role");
  }
  return messages;
}

void check_id(const Json& object, uint64_t id) {
  const auto given = object.find("id");
  if (given == object.end()) throw BadLine("expected the 'id' of the question in it");
  if (*given == Json(id)) return;
  throw MisplacedLine(
      fmt::format("expected id {}: one answer to each question, in their order", id));
}

}  // namespace

Ready read_ready(std::string_view line) {
  const auto object = parse_object(line, {"protocol", "names", "weights"});
  const auto protocol = object.find("protocol");
  if (protocol == object.end() || *protocol != Json(kProtocol)) {
    throw BadLine(fmt::format("expected {{\"protocol\": {}}} as the first line", kProtocol));
  }
  Ready ready;
  if (const auto names = object.find("names"); names != object.end()) {
    if (!names->is_array() || names->empty() || names->size() > kMaxNames) {
      throw BadLine(fmt::format("'names' is no list of 1 to {} names", kMaxNames));
    }
    for (const auto& name : *names) {
      ready.names.push_back(checked_name(text_of_key(name, "names")));
    }
  } else {
    ready.names = {"program"};
  }
  ready.weights.assign(ready.names.size(), 1);
  if (const auto weights = object.find("weights"); weights != object.end()) {
    if (!weights->is_array() || weights->size() != ready.names.size()) {
      throw BadLine(
          fmt::format("'weights' is no list of {}, one for each name", ready.names.size()));
    }
    for (size_t i = 0; i < weights->size(); ++i) {
      const auto weight = reward_of(weights->at(i));
      if (!weight) throw BadLine("a weight is null");
      ready.weights[i] = *weight;
    }
  }
  return ready;
}

std::string request_line(const Completion& completion, const Json& row, const LinePlace& place,
                         int max_turns) {
  const Json object = {{"id", place.id},
                       {"batch", place.batch},
                       {"index", place.index},
                       {"count", place.count},
                       {"sample", completion.sample},
                       {"generation", completion.generation},
                       {"turn", completion.turn},
                       {"max_turns", max_turns},
                       {"prompt", completion.prompt},
                       {"completion", completion.text},
                       {"num_tokens", completion.num_tokens},
                       {"finished", completion.finished},
                       {"row", row}};
  // A tokenizer may leave half a character at the end.
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

Answer read_answer(std::string_view line, const Expected& expected) {
  const auto object = parse_object(line, {"id", "reward", "rewards", "messages", "error"});
  check_id(object, expected.id);
  if (const auto error = object.find("error"); error != object.end()) {
    throw BadLine(fmt::format("it has failed: {}", shown(text_of_key(*error, "error"))));
  }
  const auto reward = object.find("reward"), rewards = object.find("rewards");
  const auto messages = object.find("messages");
  const auto end = object.end();
  if ((reward != end) + (rewards != end) + (messages != end) != 1) {
    throw BadLine("expected one of 'reward', 'rewards' and 'messages'");
  }
  if (messages != end) {
    if (!expected.may_go_on) throw BadLine("messages where no further turn is allowed (max_turns)");
    return {.messages = messages_of(*messages)};
  }
  const Json list = reward != end ? Json::array({*reward}) : *rewards;
  if (!list.is_array() || list.size() != expected.num_rewards) {
    throw BadLine(fmt::format("expected {} rewards, one for each name", expected.num_rewards));
  }
  Answer answer;
  for (const auto& value : list) answer.rewards.push_back(reward_of(value));
  return answer;
}

}  // namespace skein::rewards

// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/launch/watch/node_status.h"

#include <nlohmann/json.hpp>

#include "skein/core/json.h"

namespace skein::launch {
namespace {

using Json = nlohmann::json;

Json to_json(const RankStatus& rank) {
  Json json = {{"board", encode(rank.view.board)},
               {"pid", rank.pid},
               {"ended", rank.view.ended},
               {"state", std::string(1, rank.view.process_state)},
               {"end_ms", rank.end_ms},
               {"ours", rank.ours},
               {"oom", rank.oom_counted},
               {"logs", rank.logs}};
  if (rank.end) json["end"] = {rank.end->code, rank.end->signal};
  return json;
}

RankStatus to_rank(const Json& json, const std::string& host) {
  RankStatus rank;
  rank.view.board = board::decode_board(json.at("board")).value();
  rank.pid = json.at("pid");
  rank.view.host = host;
  rank.view.ended = json.at("ended");
  rank.view.process_state = json.at("state").get<std::string>().at(0);
  rank.end_ms = json.at("end_ms");
  rank.ours = json.at("ours");
  rank.oom_counted = json.at("oom");
  rank.logs = json.at("logs");
  if (json.contains("end")) {
    rank.end = ChildEnd{.code = json.at("end").at(0), .signal = json.at("end").at(1)};
  }
  return rank;
}

// A rank's message is whatever an exception said: bytes that are no UTF-8 must not end the run.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

NodeStatus to_status(const Json& json) {
  NodeStatus status;
  status.node = json.at("node");
  status.nodes = json.at("nodes");
  status.host = json.at("host");
  status.pid = json.at("pid");
  status.local_ranks = json.at("local_ranks");
  if (json.contains("identity")) status.identity = decode_identity(json.at("identity"));
  status.problem = json.at("problem");
  status.problem_code = json.at("problem_code");
  status.stop_signal = json.at("stop_signal");
  status.interrupted = json.at("interrupted");
  status.leaving = json.at("leaving");
  status.generation = json.at("generation");
  for (const auto& rank : json.at("ranks")) status.ranks.push_back(to_rank(rank, status.host));
  return status;
}

NodeCommand to_command(const Json& json) {
  NodeCommand command;
  const auto order = json.at("order").get<int>();
  if (order >= 0 && order <= static_cast<int>(Order::kQuit)) {
    command.order = static_cast<Order>(order);
  }
  command.generation = json.at("generation");
  command.first_ranks = json.at("first_ranks").get<std::vector<int>>();
  command.continues = json.at("continues");
  command.given_up = json.at("given_up");
  command.stop = json.at("stop");
  command.at_once = json.at("at_once");
  command.refused = json.at("refused").get<std::map<int, std::string>>();
  command.code = json.at("code");
  command.message = json.at("message");
  return command;
}

}  // namespace

std::string encode(const NodeStatus& status) {
  auto ranks = Json::array();
  for (const auto& rank : status.ranks) ranks.push_back(to_json(rank));
  Json json = {{"node", status.node},
               {"nodes", status.nodes},
               {"host", status.host},
               {"pid", status.pid},
               {"local_ranks", status.local_ranks},
               {"problem", status.problem},
               {"problem_code", status.problem_code},
               {"stop_signal", status.stop_signal},
               {"interrupted", status.interrupted},
               {"leaving", status.leaving},
               {"generation", status.generation},
               {"ranks", ranks}};
  if (status.identity) json["identity"] = encode(*status.identity);
  return dump(json);
}

std::string encode(const NodeCommand& command) {
  return dump({{"order", static_cast<int>(command.order)},
               {"generation", command.generation},
               {"first_ranks", command.first_ranks},
               {"continues", command.continues},
               {"given_up", command.given_up},
               {"stop", command.stop},
               {"at_once", command.at_once},
               {"refused", command.refused},
               {"code", command.code},
               {"message", command.message}});
}

std::optional<NodeStatus> decode_status(const std::string& text) try {
  return to_status(parse_json(text, kMessageLimits));
} catch (const std::exception&) {
  return std::nullopt;
}

std::optional<NodeCommand> decode_command(const std::string& text) try {
  return to_command(parse_json(text, kMessageLimits));
} catch (const std::exception&) {
  return std::nullopt;
}

}  // namespace skein::launch

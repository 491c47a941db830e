// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#pragma once

// What is a completion worth, all rewards together?
//
// The total is the weighted sum over the rewards that say something. Every rank has a Scorer of its
// own, made on its main thread, and calls it from there: the program (docs/reward_protocol.md) is
// its child. Every rank gives the same rewards the same names.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "skein/rewards/reward.h"

namespace skein::rewards {

// When a completion cannot be scored: none of the rewards has an opinion, or the program fails.
enum class Unscored {
  kStop,  // UserError, with reward, sample, generation and what was wrong
  kSkip,  // no total, and one warning a call: it is not to be learnt from
};

struct Options {
  std::vector<std::string> functions;  // for make_reward()
  std::vector<std::string> program;    // its name, sought in PATH, and arguments; no shell; or none
  std::vector<double> weights;         // of the functions, then of the program; none: 1 each
  Unscored unscored = Unscored::kStop;
  // Whether a completion that none has an opinion on cannot be scored. Off: somebody else has one.
  bool needs_opinion = true;
  double timeout_seconds = 60;         // for the program's answers to one call
  double start_timeout_seconds = 300;  // until it is ready: imports, and models that it loads
  int restarts = 3;                    // of a program, in a row: without a whole call answered
  int max_turns = 1;                   // above 1 the program may answer with messages
  // Called ten times a second while the program works. True: somebody wants the run to end, and
  // score() throws Stopped.
  std::function<bool()> stop_requested;
};

// Of a conversation: what the program answers instead of a reward.
struct Message {
  std::string role;
  std::string content;
};

struct Scores {
  // By completion. None: answered with messages, skipped, or nobody had to have an opinion.
  std::vector<std::optional<double>> totals;
  std::vector<bool> skipped;  // by completion
  // By reward, in the order of names(), then by completion; without weights.
  std::vector<std::vector<std::optional<double>>> parts;
  // By completion: none, or what is to be appended before the model goes on. The text is scored
  // when it comes again, with a higher `turn`.
  std::vector<std::vector<Message>> messages;
};

class Program;

class Scorer {
 public:
  // Throws UserError for unknown rewards, and weights that do not match.
  explicit Scorer(Options options);
  ~Scorer();

  // Of all rewards, each name once: a second `regex` is `regex_2`. The first call starts the
  // program, which names its own.
  const std::vector<std::string>& names();
  const std::vector<double>& weights();

  Scores score(std::span<const Completion> completions);

 private:
  class Doubts;

  void start();
  // Of one reward; rows that it cannot use are doubtful.
  static std::vector<std::optional<double>> scores_of(Reward& reward,
                                                      std::span<const Completion> completions,
                                                      Doubts& doubts);
  void ask_program(std::span<const Completion> completions, Scores& scores, Doubts& doubts);
  void sum_up(std::span<const Completion> completions, Scores& scores, Doubts& doubts) const;

  const Options options_;
  std::vector<std::unique_ptr<Reward>> rewards_;
  std::unique_ptr<Program> program_;
  std::vector<std::string> names_;
  std::vector<double> weights_;
  bool is_started_ = false;
};

}  // namespace skein::rewards

// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "skein/cli/chat_flags.h"
#include "skein/cli/chat_input.h"
#include "skein/cli/commands.h"
#include "skein/cli/load_model.h"
#include "skein/cli/text_ends.h"
#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/log.h"
#include "skein/rollout/generate.h"
#include "skein/text/chat_history.h"
#include "skein/text/text_stream.h"

namespace skein::cli {
namespace {

using Json = nlohmann::ordered_json;
using rollout::Finish;

constexpr int64_t kMaxNewTokens = 1024;  // of an answer, where nothing else is said

volatile std::sig_atomic_t is_interrupted = 0;  // Ctrl-C has come
int interrupts = -1;                            // the same as a descriptor

// From here on Ctrl-C is an answer's end, and interrupts the wait for a line.
void take_interrupts() {
  interrupts = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (interrupts < 0) throw_errno("cannot make an event descriptor");
  struct sigaction action{};
  action.sa_handler = [](int) {
    is_interrupted = 1;
    ::eventfd_write(interrupts, 1);
  };
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
}

void forget_interrupts() {
  eventfd_t count = 0;
  ::eventfd_read(interrupts, &count);
  is_interrupted = 0;
}

text::ChatTemplate template_of(const ChatFlags& flags) {
  auto found = text::ChatTemplate::find(flags.source);
  if (found) return std::move(*found);
  throw UserError(
      fmt::format("'{}' has no chat template: give the format that the model was trained with, "
                  "--template NAME ({}) or --chat-template FILE; a text is continued by `skein "
                  "generate`",
                  flags.source.folder.string(), fmt::join(text::built_in_templates(), ", ")));
}

text::Tokenizer tokenizer_of(const fs::path& folder) {
  if (fs::exists(folder / "tokenizer.json")) return text::Tokenizer::load(folder);
  throw UserError(
      fmt::format("'{}' has no tokenizer.json, without which there are no turns; a "
                  "text is continued by `skein generate`",
                  folder.string()));
}

// A text as it grows, shown as it grows.
class Answer {
 public:
  Answer(const text::Tokenizer& tokenizer, const std::vector<std::string>& stops, bool is_shown)
      : tokenizer_(tokenizer), stream_(stops), is_shown_(is_shown) {}

  // False once a stop text has come.
  bool add(int64_t token) {
    const auto id = static_cast<uint32_t>(token);
    if (!tokenizer_.is_special(id)) append(stream_.add(bytes_of(id)));
    return !stream_.is_stopped();
  }
  const std::string& finish() {
    append(stream_.finish());
    return text_;
  }

 private:
  std::string_view bytes_of(uint32_t id) {
    auto bytes = tokenizer_.bytes_of(id);
    const bool is_first = !std::exchange(has_begun_, true);
    const uint32_t alone[] = {id};
    // Some tokenizers spell the first word of a text with a space that is not in the text.
    if (is_first && bytes.starts_with(' ') && !tokenizer_.decode(alone).starts_with(' ')) {
      bytes.remove_prefix(1);
    }
    return bytes;
  }
  void append(const std::string& piece) {
    text_ += piece;
    if (!is_shown_) return;
    std::fwrite(piece.data(), 1, piece.size(), stdout);
    std::fflush(stdout);
  }

  const text::Tokenizer& tokenizer_;
  text::TextStream stream_;
  std::string text_;
  bool has_begun_ = false;
  bool is_shown_;
};

// A model, and what has been said to it.
class Chat {
 public:
  // The flags' folder is where the model's tokenizer and template are.
  Chat(const ChatFlags& flags, const plan::ModelFolder& folder)
      : wishes_(rollout::read_generation_config(folder.parts())),
        template_(template_of(flags)),
        tokenizer_(tokenizer_of(flags.source.folder)),
        ends_(ends_of_turn(wishes_, template_, tokenizer_)),
        history_(tokenizer_, template_,
                 {.system = flags.system, .variables_json = flags.variables}),
        prints_json_(flags.json),
        device_(device_of(flags.device)) {
    options_ = {.sampling = sampling_of(flags, wishes_),
                .max_new_tokens =
                    flags.max_new_tokens.value_or(wishes_.max_new_tokens.value_or(kMaxNewTokens)),
                .stop_tokens = ends_.tokens};
    ends_.texts.insert(ends_.texts.end(), flags.stops.begin(), flags.stops.end());
    model_ = load_model(folder, flags.dtype, device_);
  }

  const std::string& template_name() const { return template_.name(); }
  void reset() { history_.reset(); }

  // Prints the answer. Throws UserError for a question that the template refuses or that is too
  // long; the conversation is then what it was.
  void answer(const std::string& question) {
    const auto positions = model_->max_positions();
    const auto room = positions - std::min(options_.max_new_tokens, positions / 4 + 1);
    const auto prompt = history_.ask(question, static_cast<size_t>(room));
    if (prompt.num_dropped > 0) {
      log_info("the conversation is too long for the model's {} positions: {} forgotten", positions,
               counted(prompt.num_dropped, "oldest turn"));
    }
    Answer answer(tokenizer_, ends_.texts, !prints_json_);
    const auto result = generate(prompt, answer);
    const auto& text = answer.finish();
    history_.answer(text);
    print(question, text, prompt, result);
  }

 private:
  rollout::Continuation generate(const text::ChatPrompt& prompt, Answer& answer) {
    options_.on_token = [&](size_t, int64_t token) {
      return ends_.holds(token) || (answer.add(token) && is_interrupted == 0);
    };
    const rollout::Request request{.prompt = {prompt.ids.begin(), prompt.ids.end()},
                                   .sample = num_turns_++};
    tensor::PlainUnits units;
    const c10::DeviceGuard guard(device_);
    return rollout::generate(*model_, units, device_, {&request, 1}, options_).front();
  }

  void print(const std::string& question, const std::string& text, const text::ChatPrompt& prompt,
             const rollout::Continuation& result) const {
    const bool is_cut = result.finish == Finish::kLength || result.finish == Finish::kPositions;
    if (prints_json_) {
      const Json object{{"prompt", question},
                        {"text", text},
                        {"finish_reason", rollout::finish_reason(result.finish)},
                        {"num_prompt_tokens", prompt.ids.size()},
                        {"num_new_tokens", result.tokens.size()}};
      fmt::print("{}\n", object.dump());
    } else {
      fmt::print("\n");
    }
    std::fflush(stdout);
    if (is_cut && !prints_json_) {
      log_info("note: the answer is cut after {}{}", counted(result.tokens.size(), "token"),
               result.finish == Finish::kLength
                   ? " (--max-new-tokens)"
                   : fmt::format(": the model knows {} positions", model_->max_positions()));
    }
  }

  rollout::GenerationConfig wishes_;
  text::ChatTemplate template_;
  text::Tokenizer tokenizer_;
  TextEnds ends_;
  text::ChatHistory history_;
  bool prints_json_;
  at::Device device_;
  rollout::GenerateOptions options_;
  std::unique_ptr<model::Model> model_;
  uint64_t num_turns_ = 0;  // no two answers share their random numbers
};

// One word behind a slash. A path is none: it has two slashes, a point or a capital.
bool is_command(const std::string& line) {
  return line.size() > 1 && line[0] == '/' &&
         line.find_first_not_of("abcdefghijklmnopqrstuvwxyz", 1) == std::string::npos;
}

// False when that was the last line.
bool take_line(const ChatLine& line, Chat& chat) {
  if (line.text == "/exit" || line.text == "/quit") return false;
  if (line.text == "/reset") {
    chat.reset();
  } else if (is_command(line.text)) {
    throw UserError(
        fmt::format("there is no {}: /reset forgets the conversation, /exit and /quit leave; a "
                    "blank before it says it to the model",
                    line.text));
  } else if (line.text.find_first_not_of(" \t") != std::string::npos) {
    chat.answer(line.text);
  }
  return true;
}

void talk_in_terminal(Chat& chat) {
  take_interrupts();
  ChatInput input(STDIN_FILENO, interrupts);
  log_info("{}; /reset forgets, Ctrl-C stops an answer, Ctrl-D or /exit leaves",
           chat.template_name());
  while (true) {
    forget_interrupts();
    fmt::print(stderr, "> ");
    const auto line = input.next();
    if (line.kind != ChatLine::Kind::kText) fmt::print(stderr, "\n");
    if (line.kind == ChatLine::Kind::kEnd) return;
    if (line.kind == ChatLine::Kind::kInterrupted) continue;
    try {
      if (!take_line(line, chat)) return;
    } catch (const UserError& error) {
      log_error("{}", error.what());  // the next question may be better
    }
  }
}

void answer_lines(ChatInput& input, Chat& chat) {
  while (true) {
    const auto line = input.next();
    if (line.kind == ChatLine::Kind::kEnd) return;
    if (line.kind == ChatLine::Kind::kInterrupted) continue;
    try {
      if (!take_line(line, chat)) return;
    } catch (const UserError& error) {
      throw UserError(fmt::format("stdin:{}: {}", line.number, error.what()));
    }
  }
}

}  // namespace

int run_chat_command(Arguments arguments) {
  if (asks_for_help(arguments)) {
    fmt::print("{}", kChatUsage);
    return static_cast<int>(ExitCode::kDone);
  }
  auto flags = parse_chat_flags(arguments);
  const auto folder = plan::open_model_folder({flags.source.folder, flags.adapter, flags.base});
  flags.source.folder = folder.tokenizer_folder();
  Chat chat(flags, folder);
  if (::isatty(STDIN_FILENO) == 1) {
    talk_in_terminal(chat);
  } else {
    ChatInput input(STDIN_FILENO);
    answer_lines(input, chat);
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace skein::cli

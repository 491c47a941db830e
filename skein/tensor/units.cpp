// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/units.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <exception>
#include <iterator>
#include <optional>
#include <utility>

#include "skein/core/error.h"
#include "skein/tensor/host_stash.h"

namespace skein::tensor {
namespace {

namespace autograd = torch::autograd;

// One call of a unit's block, as backward needs it.
struct Call {
  Units& units;
  int unit;
  Block block;
  Tensors inputs;                       // detached from the outer graph, requires_grad as there
  Tensors outputs;                      // roots of the inner graph; empty when it was dropped
  std::optional<HostStash::Kept> kept;  // the inputs, where a stash has them
  std::vector<Tap::Use> uses;           // of the unit's taps, in the inner graph
};

bool requires_grad(const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }

Tensors detach_inputs(const Tensors& inputs) {
  Tensors detached;
  detached.reserve(inputs.size());
  for (const auto& input : inputs) {
    detached.push_back(input.detach().set_requires_grad(input.requires_grad()));
  }
  return detached;
}

// With its graph, what was listened to stays in the call.
Tensors run_block(Call& call, bool keep_graph) {
  const at::AutoGradMode mode(keep_graph);
  auto outputs = call.block(call.inputs);
  call.uses.clear();
  for (auto* tap : call.units.taps(call.unit)) call.uses.push_back(tap->take());
  return outputs;
}

// The node of the outer graph that stands for a whole unit.
class UnitNode final : public autograd::Node {
 public:
  UnitNode(Call call, autograd::edge_list&& input_edges)
      : Node(std::move(input_edges)), call_(std::move(call)) {}

  autograd::variable_list apply(autograd::variable_list&& output_gradients) override {
    auto& units = call_.units;
    SKEIN_CHECK(call_.block, "backward runs twice over one forward");
    units.acquire(call_.unit, Units::Pass::kBackward);
    if (call_.kept) call_.inputs = call_.kept->take();
    const auto outputs = call_.outputs.empty() ? run_block(call_, /*keep_graph=*/true)
                                               : std::exchange(call_.outputs, {});
    auto gradients = differentiate(outputs, output_gradients);
    release_variables();
    units.release(call_.unit, Units::Pass::kBackward);
    return gradients;
  }

  void release_variables() override {
    call_.inputs.clear();
    call_.outputs.clear();
    call_.kept.reset();
    call_.uses.clear();
    call_.block = nullptr;
  }

 private:
  // Gives the units the gradients of their leaves, and those of outputs that are listened to;
  // returns the inputs'.
  autograd::variable_list differentiate(const Tensors& outputs,
                                        const autograd::variable_list& output_gradients) {
    autograd::variable_list roots, seeds, wanted;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!output_gradients[i].defined() || !requires_grad(outputs[i])) continue;
      roots.push_back(outputs[i]);
      seeds.push_back(output_gradients[i]);
    }
    std::copy_if(call_.inputs.begin(), call_.inputs.end(), std::back_inserter(wanted),
                 requires_grad);
    for (const auto& use : call_.uses) {
      if (use.output.defined()) wanted.push_back(use.output);
    }
    const auto leaves = call_.units.leaves(call_.unit);
    wanted.insert(wanted.end(), leaves.begin(), leaves.end());
    if (roots.empty() || wanted.empty()) return autograd::variable_list(call_.inputs.size());

    auto found = autograd::grad(roots, wanted, seeds, /*retain_graph=*/false,
                                /*create_graph=*/false, /*allow_unused=*/true);
    autograd::variable_list gradients;
    auto next = std::make_move_iterator(found.begin());
    for (const auto& input : call_.inputs) {
      gradients.push_back(requires_grad(input) ? *next++ : at::Tensor());
    }
    std::vector<Tapped> seen;
    const auto taps = call_.units.taps(call_.unit);
    for (size_t i = 0; i < call_.uses.size(); ++i) {
      const auto& [input, output] = call_.uses[i];
      if (!output.defined()) continue;
      const at::Tensor gradient = *next++;
      seen.push_back({taps[i], input, gradient.defined() ? gradient : at::zeros_like(output)});
    }
    if (!seen.empty()) call_.units.hand_over(call_.unit, seen);
    call_.units.add_gradients(call_.unit, Tensors(next, std::make_move_iterator(found.end())));
    return gradients;
  }

  Call call_;
};

}  // namespace

Tensors Units::run(int unit, const Block& block, const Tensors& inputs) {
  acquire(unit, Pass::kForward);
  const bool differentiable =
      at::GradMode::is_enabled() &&
      (std::ranges::any_of(inputs, requires_grad) || !leaves(unit).empty() || !taps(unit).empty());
  Tensors outputs;
  if (!differentiable) {
    outputs = block(inputs);
  } else {
    Call call{*this, unit, block, detach_inputs(inputs), {}, {}, {}};
    const bool keep_graph = !recompute(unit);
    auto* const host = keep_graph ? nullptr : stash(unit);
    if (host) call.kept.emplace(host->keep(call.inputs));
    outputs = run_block(call, keep_graph);
    if (host) call.inputs.clear();
    // Of a root unit with several uses the leaves may belong to another one.
    if (keep_graph && std::ranges::none_of(outputs, requires_grad)) {
      release(unit, Pass::kForward);
      return outputs;
    }
    expect_backward(unit);
    if (keep_graph) call.outputs = outputs;
    for (auto& output : outputs) output = output.detach();
    const std::shared_ptr<UnitNode> node(
        new UnitNode(std::move(call), autograd::collect_next_edges(inputs)), autograd::deleteNode);
    for (auto& output : outputs) autograd::set_history(output, node);
  }
  release(unit, Pass::kForward);
  return outputs;
}

void Units::listen(const std::vector<TapPlace>& places, TapSink sink) {
  stop_listening();
  for (const auto& [unit, tap] : places) {
    taps_.resize(std::max<size_t>(taps_.size(), static_cast<size_t>(unit) + 1));
    taps_[static_cast<size_t>(unit)].push_back(tap);
    tap->set_listening(true);
  }
  sink_ = std::move(sink);
}

void Units::stop_listening() {
  for (const auto& unit : taps_) {
    for (auto* tap : unit) tap->set_listening(false);
  }
  taps_.clear();
  sink_ = nullptr;
}

std::span<Tap* const> Units::taps(int unit) const {
  if (static_cast<size_t>(unit) >= taps_.size()) return {};
  return taps_[static_cast<size_t>(unit)];
}

ForwardPass::ForwardPass(Units& units, const PassOptions& options)
    : units_(units), exceptions_(std::uncaught_exceptions()) {
  if (units_.open_passes_ == 0) units_.begin_forward(options);
  ++units_.open_passes_;
}

ForwardPass::~ForwardPass() noexcept(false) {
  const bool last = --units_.open_passes_ == 0;
  if (last && std::uncaught_exceptions() == exceptions_) units_.end_forward();
}

}  // namespace skein::tensor

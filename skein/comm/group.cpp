// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/comm/group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string_view>
#include <utility>

#include "skein/board/board.h"
#include "skein/comm/backend.h"
#include "skein/core/error.h"
#include "skein/trace/trace.h"

namespace skein::comm {
namespace {

std::atomic<int64_t> blocked_nanoseconds = 0;

// Adds its own lifetime to the time blocked.
class BlockedTimer {
 public:
  BlockedTimer() : start_(Clock::now()) {}
  ~BlockedTimer() {
    blocked_nanoseconds += std::chrono::nanoseconds(Clock::now() - start_).count();
  }
  BlockedTimer(const BlockedTimer&) = delete;
  BlockedTimer& operator=(const BlockedTimer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_;
};

// c10d raises version counters, on threads of its own, and autograd would take that for a change
// of a parameter. The alias has its own counter, and keeps the memory while a work is under way.
at::Tensor alias_of(const at::Tensor& tensor) {
  SKEIN_CHECK(tensor.is_contiguous(), "a collective takes contiguous memory");
  return at::from_blob(
      tensor.data_ptr(), {tensor.numel()}, [keep = tensor.storage()](void*) {},
      at::TensorOptions(tensor.scalar_type()).device(tensor.device()), tensor.device());
}

void check_pair(const at::Tensor& whole, const at::Tensor& shard, const Backend& backend,
                const char* operation) {
  SKEIN_CHECK(whole.numel() == shard.numel() * backend.size() &&
                  whole.scalar_type() == shard.scalar_type() && whole.device() == shard.device(),
              fmt::format("{} on rank {} of {}: whole has {} elements of {} on {}, shard {} of {} "
                          "on {}",
                          operation, backend.rank(), backend.size(), whole.numel(),
                          c10::toString(whole.scalar_type()), whole.device().str(), shard.numel(),
                          c10::toString(shard.scalar_type()), shard.device().str()));
}

// As users of other tools write them.
const char* name_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    case at::kLong:
      return "int64";
    case at::kInt:
      return "int32";
    default:
      return c10::toString(type);
  }
}

struct Elements {
  at::ScalarType type;
  int64_t count;
};

Elements elements_of(const at::Tensor& tensor) { return {tensor.scalar_type(), tensor.numel()}; }

// Writes the call to the rank's board.
uint64_t begin_call(const char* group, std::string_view operation, const Elements& elements,
                    const Group::Site& site) {
  if (!board::has_board()) return 0;
  const std::string_view path = site.file_name();
  std::array<char, 128> text;
  const auto end =
      fmt::format_to_n(text.data(), text.size(), "{}:{}", path.substr(path.rfind('/') + 1),
                       site.line());  // npos + 1 is 0
  return board::begin_call(group, operation, name_of(elements.type),
                           static_cast<uint64_t>(elements.count),
                           {text.data(), std::min(end.size, text.size())});
}

// Shows a collective in a trace, from `since` to the end of its wait.
void follow(std::function<void()>& wait, const trace::Point& since, const char* operation,
            const at::Tensor& whole) {
  if (!since) return;
  auto end = [since, name = fmt::format("{} {} B", operation, whole.nbytes())] {
    trace::add("collective", name, since, trace::Shape::kFloating);
  };
  if (!wait) return end();
  wait = [wait = std::move(wait), end = std::move(end)] {
    wait();
    end();
  };
}

class StagingBackend final : public Backend {
 public:
  explicit StagingBackend(std::shared_ptr<Backend> inner)
      : Backend(inner->rank(), inner->size()), inner_(std::move(inner)) {}

  Work all_gather(const at::Tensor& whole, const at::Tensor& shard, uint64_t call) override {
    if (whole.is_cpu()) return inner_->all_gather(whole, shard, call);
    const auto host = host_memory(whole);
    return bring_back(inner_->all_gather(host, host_copy(shard), call), host, whole);
  }

  Work reduce_scatter(const at::Tensor& shard, const at::Tensor& whole, uint64_t call) override {
    if (whole.is_cpu()) return inner_->reduce_scatter(shard, whole, call);
    const auto host = host_memory(shard);
    return bring_back(inner_->reduce_scatter(host, host_copy(whole), call), host, shard);
  }

  Work all_reduce(const at::Tensor& whole, uint64_t call) override {
    if (whole.is_cpu()) return inner_->all_reduce(whole, call);
    const auto host = host_copy(whole);
    return bring_back(inner_->all_reduce(host, call), host, whole);
  }

  Work broadcast(const at::Tensor& tensor, int root, uint64_t call) override {
    if (tensor.is_cpu()) return inner_->broadcast(tensor, root, call);
    const auto host = host_copy(tensor);
    return bring_back(inner_->broadcast(host, root, call), host, tensor);
  }

  Work gather_host(HostBytes all, uint64_t call) override {
    return inner_->gather_host(std::move(all), call);
  }

  Work compose(const Call& call, std::vector<at::Tensor> tensors,
               std::function<void()> steps) override {
    return inner_->compose(call, std::move(tensors), std::move(steps));
  }

  std::shared_ptr<Backend> split(const std::vector<int>& members) override {
    return stage_cuda(inner_->split(members));
  }

  void shutdown() override { inner_->shutdown(); }

 private:
  static at::Tensor host_memory(const at::Tensor& tensor) {
    return at::empty({tensor.numel()}, at::TensorOptions(tensor.scalar_type()).pinned_memory(true));
  }

  // Blocks until the current stream has produced the values: the carrier reads them at once.
  static at::Tensor host_copy(const at::Tensor& tensor) {
    auto host = host_memory(tensor);
    host.copy_(tensor);
    return host;
  }

  static Work bring_back(Work work, at::Tensor host, at::Tensor destination) {
    return Work([work = std::move(work), host = std::move(host),
                 destination = std::move(destination)]() mutable {
      work.wait();
      destination.copy_(host);
    });
  }

  std::shared_ptr<Backend> inner_;
};

std::shared_ptr<Backend> make_backend(const GroupOptions& options, Store& store) {
  if (options.backend == "nccl") {
    auto nccl = make_nccl(options, store);
    return options.sums_by_node.value_or(options.size > 1) ? sum_by_node(std::move(nccl), options)
                                                           : nccl;
  }
  if (options.backend == "gloo") {
    if (options.size == 1) return make_single();
    auto gloo = make_gloo(options, store);
    if (options.sums_by_node.value_or(false)) gloo = sum_by_node(std::move(gloo), options);
    return stage_cuda(std::move(gloo));
  }
  throw UserError(
      fmt::format("unknown backend '{}' for the ranks' group: use gloo or nccl", options.backend));
}

}  // namespace

Meeting Meeting::split(const std::vector<int>& members, int nth) const {
  Meeting part = *this;
  part.options.rank = static_cast<int>(std::ranges::find(members, options.rank) - members.begin());
  part.options.size = static_cast<int>(members.size());
  part.prefix = fmt::format("{}split{}.{}/", prefix, nth, members.front());
  return part;
}

std::shared_ptr<Backend> stage_cuda(std::shared_ptr<Backend> inner) {
  return std::make_shared<StagingBackend>(std::move(inner));
}

void Work::wait() {
  const auto wait = std::exchange(wait_, nullptr);
  if (!wait) return;
  const BlockedTimer timer;
  const trace::Scope scope("wait", "wait");
  wait();
}

double Group::seconds_blocked() { return static_cast<double>(blocked_nanoseconds) * 1e-9; }

Group::Group() : backend_(make_single()) {}
Group::Group(std::shared_ptr<Backend> backend) : backend_(std::move(backend)) {}

int Group::rank() const { return backend_->rank(); }
int Group::size() const { return backend_->size(); }

Work Group::all_gather(const at::Tensor& whole, const at::Tensor& shard, Site site) {
  check_pair(whole, shard, *backend_, "all_gather");
  if (whole.numel() == 0) return {};
  backend_->count_sent(static_cast<int64_t>(shard.nbytes()) * (size() - 1));
  const uint64_t call = begin_call(name(), "all_gather", elements_of(whole), site);
  const auto since = trace::now();
  auto work = backend_->all_gather(alias_of(whole), alias_of(shard), call);
  work.device_ = whole.device();
  follow(work.wait_, since, "all_gather", whole);
  return work;
}

Work Group::reduce_scatter(const at::Tensor& shard, const at::Tensor& whole, Site site) {
  check_pair(whole, shard, *backend_, "reduce_scatter");
  if (whole.numel() == 0) return {};
  backend_->count_sent(static_cast<int64_t>(shard.nbytes()) * (size() - 1));
  const uint64_t call = begin_call(name(), "reduce_scatter", elements_of(whole), site);
  const auto since = trace::now();
  auto work = backend_->reduce_scatter(alias_of(shard), alias_of(whole), call);
  work.device_ = whole.device();
  follow(work.wait_, since, "reduce_scatter", whole);
  return work;
}

Work Group::all_reduce(const at::Tensor& whole, Site site) {
  SKEIN_CHECK(whole.numel() % size() == 0,
              fmt::format("all_reduce of {} elements is not a multiple of {} ranks", whole.numel(),
                          size()));
  if (whole.numel() == 0) return {};
  backend_->count_sent(2 * (static_cast<int64_t>(whole.nbytes()) / size()) * (size() - 1));
  const uint64_t call = begin_call(name(), "all_reduce", elements_of(whole), site);
  const auto since = trace::now();
  auto work = backend_->all_reduce(alias_of(whole), call);
  work.device_ = whole.device();
  follow(work.wait_, since, "all_reduce", whole);
  return work;
}

Work Group::broadcast(const at::Tensor& tensor, int root, Site site) {
  SKEIN_CHECK(root >= 0 && root < size(), fmt::format("no rank {} among {}", root, size()));
  if (tensor.numel() == 0) return {};
  if (rank() == root) backend_->count_sent(static_cast<int64_t>(tensor.nbytes()) * (size() - 1));
  const uint64_t call =
      begin_call(name(), fmt::format("broadcast from rank {}", root), elements_of(tensor), site);
  const auto since = trace::now();
  auto work = backend_->broadcast(alias_of(tensor), root, call);
  work.device_ = tensor.device();
  follow(work.wait_, since, "broadcast", tensor);
  return work;
}

template <typename T>
std::vector<T> HostSum<T>::take() {
  const auto all = std::exchange(all_, nullptr);
  SKEIN_CHECK(all, "a host sum is taken once, after it was started");
  work_.wait();
  std::vector<T> values(all->size() / sizeof(T));
  std::memcpy(values.data(), all->data(), all->size());
  std::vector<T> sums(values.begin(), values.begin() + count_);
  for (size_t i = sums.size(); i < values.size(); ++i) sums[i % sums.size()] += values[i];
  return sums;
}

template class HostSum<int64_t>;
template class HostSum<double>;

template <typename T>
HostSum<T> Group::start(const std::vector<T>& values, const char* operation, const Site& site) {
  HostSum<T> sum;
  const size_t part = values.size() * sizeof(T);
  sum.count_ = std::ssize(values);
  sum.all_ = std::make_shared<std::vector<std::byte>>(part * static_cast<size_t>(size()));
  if (values.empty()) return sum;
  std::memcpy(sum.all_->data() + part * static_cast<size_t>(rank()), values.data(), part);
  const uint64_t call =
      begin_call(name(), operation, {c10::CppTypeToScalarType<T>::value, std::ssize(values)}, site);
  sum.work_ = backend_->gather_host(sum.all_, call);
  return sum;
}

HostSum<int64_t> Group::start_sum(const std::vector<int64_t>& values, Site site) {
  return start(values, "host sum", site);
}

int64_t Group::sum(int64_t value, Site site) {
  return sum(std::vector<int64_t>{value}, site).front();
}
double Group::sum(double value, Site site) { return sum(std::vector<double>{value}, site).front(); }

std::vector<int64_t> Group::sum(const std::vector<int64_t>& values, Site site) {
  return start(values, "host sum", site).take();
}

std::vector<double> Group::sum(const std::vector<double>& values, Site site) {
  return start(values, "host sum", site).take();
}

void Group::barrier(Site site) { start(std::vector<int64_t>{0}, "barrier", site).take(); }

Group Group::split(int64_t colour, Site site) {
  std::vector<int64_t> colours(size());
  colours[rank()] = colour;
  colours = sum(colours, site);
  std::vector<int> members;
  for (int peer = 0; peer < size(); ++peer) {
    if (colours[peer] == colour) members.push_back(peer);
  }
  Group part(backend_->split(members));
  part.is_part_ = true;
  return part;
}

void Group::finish(Work& work) {
  work.wait();
  if (work.device_.is_cpu()) return;
  c10::impl::VirtualGuardImpl(work.device_.type()).getStream(work.device_).synchronize();
}

int64_t Group::bytes_sent() const { return backend_->bytes_sent(); }

void Group::shutdown() {
  if (!is_part_) board::enter_phase(board::Phase::kEnding);
  backend_->shutdown();
}

Group connect(const GroupOptions& options, Store& store) {
  SKEIN_CHECK(options.rank >= 0 && options.rank < options.size,
              fmt::format("rank {} of {}", options.rank, options.size));
  board::enter_phase(board::Phase::kJoining);
  Group group(make_backend(options, store));
  board::enter_phase(board::Phase::kLoading);
  return group;
}

}  // namespace skein::comm

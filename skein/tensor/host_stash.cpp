// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/tensor/host_stash.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/StorageImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "skein/core/amounts.h"
#include "skein/core/error.h"
#include "skein/core/host_memory.h"

namespace skein::tensor {
namespace {

// Which values a tensor has. A storage that lives is no other's, and its memory may be reused after
// it: so the storage itself is compared, weakly held, and not its address.
struct Identity {
  explicit Identity(const at::Tensor& tensor)
      : storage(tensor.storage().getWeakStorageImpl()),
        offset(tensor.storage_offset()),
        version(version_of(tensor)) {}

  bool is_of(const at::Tensor& tensor) const {
    const auto alive = storage.lock();
    return alive && alive.get() == tensor.storage().unsafeGetStorageImpl() &&
           offset == tensor.storage_offset() && version == version_of(tensor);
  }
  static int64_t version_of(const at::Tensor& tensor) {
    return tensor.is_inference() ? 0 : static_cast<int64_t>(tensor._version());
  }

  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  int64_t offset, version;
};

// A tensor that lies in slabs. On the device it is while a copy, out or in, is under way.
struct Entry {
  explicit Entry(const at::Tensor& tensor)
      : identity(tensor),
        sizes(tensor.sizes().vec()),
        strides(tensor.strides().vec()),
        options(tensor.options()) {}

  bool is_of(const at::Tensor& tensor) const {
    return identity.is_of(tensor) && tensor.sizes() == sizes && tensor.strides() == strides &&
           tensor.scalar_type() == c10::typeMetaToScalarType(options.dtype());
  }

  Identity identity;
  std::vector<int64_t> sizes, strides;
  at::TensorOptions options;
  std::vector<at::Tensor> slabs;
  at::Tensor on_device;
  std::unique_ptr<CopyEngine::Mark> mark;  // of the copy under way; none: it has ended
};

// One input of a use: an entry, or the tensor itself where it stays.
struct Slot {
  std::shared_ptr<Entry> entry;
  at::Tensor tensor;
  bool requires_grad = false;
};

// Its memory in order, whatever its strides.
at::Tensor bytes_of(const at::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset()).view(at::kByte);
}

}  // namespace

struct HostStash::Kept::Use {
  std::vector<Slot> slots;
};

class HostStash::Core {
 public:
  using Use = Kept::Use;

  Core(std::shared_ptr<CopyEngine> engine, const StashOptions& options)
      : engine_(std::move(engine)), options_(options) {}

  void keep(const std::shared_ptr<Use>& use, const std::vector<at::Tensor>& inputs) {
    const at::NoGradGuard no_grad;
    uses_.push_back(use);
    std::vector<std::shared_ptr<Entry>> leaving;
    engine_->begin();
    for (const auto& input : inputs) {
      Slot slot{.requires_grad = input.requires_grad()};
      if (!leaves(input)) {
        slot.tensor = input;
      } else if (slot.entry = find(input); !slot.entry) {
        slot.entry = send(input);
        leaving.push_back(slot.entry);
      }
      use->slots.push_back(std::move(slot));
    }
    // The copies that were under way had the last unit's forward to end in.
    for (const auto& entry : std::exchange(leaving_, std::move(leaving))) let_go(*entry);
  }

  std::vector<at::Tensor> take(const std::shared_ptr<Use>& use) {
    const at::NoGradGuard no_grad;
    std::erase(uses_, use);
    bring(*use);
    std::vector<at::Tensor> tensors;
    for (const auto& [entry, tensor, requires_grad] : use->slots) {
      if (entry && entry->mark) entry->mark->order_caller();
      const auto& found = entry ? entry->on_device : tensor;
      tensors.push_back(found.detach().set_requires_grad(requires_grad));
    }
    for (const auto& slot : use->slots) {
      if (slot.entry) let_go(*slot.entry);
    }
    drop_slots(*use);
    if (!uses_.empty()) bring(*uses_.back());
    return tensors;
  }

  void forget(const std::shared_ptr<Use>& use) {
    std::erase(uses_, use);
    drop_slots(*use);
  }

  int64_t kept_bytes() const {
    return host_bytes() - static_cast<int64_t>(free_.size()) * options_.slab_bytes;
  }
  int64_t host_bytes() const { return num_slabs_ * options_.slab_bytes; }

 private:
  bool leaves(const at::Tensor& input) const {
    return static_cast<int64_t>(input.nbytes()) >= options_.smallest &&
           input.is_non_overlapping_and_dense();
  }

  std::shared_ptr<Entry> find(const at::Tensor& input) const {
    for (const auto& use : uses_) {
      for (const auto& [entry, tensor, requires_grad] : use->slots) {
        if (entry && entry->is_of(input)) return entry;
      }
    }
    return nullptr;
  }

  std::shared_ptr<Entry> send(const at::Tensor& input) {
    auto entry = std::make_shared<Entry>(input);
    entry->on_device = input.detach();
    const auto source = bytes_of(entry->on_device);
    for (int64_t begin = 0; begin < source.numel(); begin += options_.slab_bytes) {
      const int64_t size = std::min(options_.slab_bytes, source.numel() - begin);
      entry->slabs.push_back(take_slab());
      engine_->copy(entry->slabs.back().narrow(0, 0, size), source.narrow(0, begin, size));
    }
    entry->mark = engine_->mark();
    return entry;
  }

  // Of the memory that is allocated here the caller's stream may still be using what lay there.
  void bring(Use& use) {
    const at::NoGradGuard no_grad;
    for (auto& slot : use.slots) {
      if (!slot.entry || slot.entry->on_device.defined()) continue;
      auto& entry = *slot.entry;
      entry.on_device = at::empty_strided(entry.sizes, entry.strides, entry.options);
      const auto target = bytes_of(entry.on_device);
      engine_->begin();
      for (size_t i = 0; i < entry.slabs.size(); ++i) {
        const int64_t begin = static_cast<int64_t>(i) * options_.slab_bytes;
        const int64_t size = std::min(options_.slab_bytes, target.numel() - begin);
        engine_->copy(target.narrow(0, begin, size), entry.slabs[i].narrow(0, 0, size));
      }
      entry.mark = engine_->mark();
    }
  }

  // What the caller issues from here on may have the device's memory.
  static void let_go(Entry& entry) {
    if (entry.mark) entry.mark->order_caller();
    entry.mark.reset();
    entry.on_device.reset();
  }

  // Slabs may be copied into again at once: copies are made one after the other.
  void drop_slots(Use& use) {
    for (auto& [entry, tensor, requires_grad] : std::exchange(use.slots, {})) {
      if (!entry || is_kept(entry)) continue;
      let_go(*entry);
      std::erase(leaving_, entry);
      free_.insert(free_.end(), entry->slabs.begin(), entry->slabs.end());
      entry->slabs.clear();
    }
  }

  bool is_kept(const std::shared_ptr<Entry>& entry) const {
    return std::ranges::any_of(uses_, [&](const auto& use) {
      return std::ranges::find(use->slots, entry, &Slot::entry) != use->slots.end();
    });
  }

  at::Tensor take_slab() {
    if (free_.empty()) {
      check_room();
      free_.push_back(engine_->allocate(options_.slab_bytes));
      ++num_slabs_;
    }
    auto slab = std::move(free_.back());
    free_.pop_back();
    return slab;
  }

  void check_room() const {
    if (host_bytes() + options_.slab_bytes <= engine_->budget()) return;
    throw WantOfMemory(fmt::format(
        "offload_activations: the inputs of blocks need more host memory than the {} that this "
        "rank may take: give a smaller per_device_train_batch_size, or shorter rows (block_size)",
        shown_bytes(static_cast<uint64_t>(engine_->budget()))));
  }

  std::shared_ptr<CopyEngine> engine_;
  StashOptions options_;
  std::vector<std::shared_ptr<Use>> uses_;       // that live, the youngest last
  std::vector<std::shared_ptr<Entry>> leaving_;  // of the youngest: on the device still
  std::vector<at::Tensor> free_;                 // slabs
  int64_t num_slabs_ = 0;
};

HostStash::HostStash(std::shared_ptr<CopyEngine> engine, const StashOptions& options)
    : core_(std::make_shared<Core>(std::move(engine), options)) {}

HostStash::Kept HostStash::keep(const std::vector<at::Tensor>& inputs) {
  Kept kept(core_, std::make_shared<Kept::Use>());
  core_->keep(kept.use_, inputs);
  return kept;
}

int64_t HostStash::kept_bytes() const { return core_->kept_bytes(); }
int64_t HostStash::host_bytes() const { return core_->host_bytes(); }

HostStash::Kept::Kept(std::shared_ptr<Core> core, std::shared_ptr<Use> use)
    : core_(std::move(core)), use_(std::move(use)) {}

HostStash::Kept::Kept(Kept&& other) noexcept = default;

HostStash::Kept::~Kept() {
  if (!use_) return;
  try {
    core_->forget(use_);
  } catch (const std::exception&) {
    // A device that has failed: the error that says so is on its way already.
  }
}

std::vector<at::Tensor> HostStash::Kept::take() {
  SKEIN_CHECK(use_, "what was kept is taken twice");
  return core_->take(std::exchange(use_, nullptr));
}

}  // namespace skein::tensor

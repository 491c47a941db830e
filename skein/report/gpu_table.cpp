// SPDX-License-Identifier: Apache-2.0
// Copyright the skein authors.
#include "skein/report/gpu_table.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <vector>

namespace skein::report {
namespace {

// The first row that fits counts, so the narrower names stand first. GeForce figures are those with
// fp32 accumulation, half of what the box says. Links are one direction of what the sheets add up
// from both: NVLink 5 900, 4 450 (H800, A800: 200), 3 300, 2 150; PCIe x16 of generation 5 63, 4
// 31.5, 3 15.75. Cards that NVLink joins only in pairs, by a bridge, are listed with their PCIe.
constexpr GpuModel kGpus[] = {
    {"GB200", 2500, 2500, 80, 184, 8000, 900},
    {"B200", 2250, 2250, 75, 179, 7700, 900},
    {"GH200", 989, 989, 67, 95, 4000, 450},
    {"H200", 989, 989, 67, 139, 4800, 450},
    {"H100 NVL", 835, 835, 60, 93, 3900, 63},
    {"H100 PCIe", 756, 756, 51, 79, 2000, 63},
    {"H100", 989, 989, 67, 79, 3350, 450},
    {"H800 PCIe", 756, 756, 51, 79, 2000, 63},
    {"H800", 989, 989, 67, 79, 3350, 200},
    {"H20", 148, 148, 44, 95, 4000, 450},
    {"A100 40", 312, 312, 19.5, 39, 1555, 300},
    {"A100 40GB", 312, 312, 19.5, 39, 1555, 300},
    {"A100", 312, 312, 19.5, 79, 2039, 300},
    {"A800", 312, 312, 19.5, 79, 2039, 200},
    {"A40", 149.7, 149.7, 37.4, 44, 696, 31.5},
    {"A6000", 154.8, 154.8, 38.7, 47, 768, 31.5},
    {"A10", 125, 125, 31.2, 22, 600, 31.5},
    {"L4", 121, 121, 30.3, 22, 300, 31.5},
    {"L40S", 362, 362, 91.6, 44, 864, 31.5},
    {"L40", 181, 181, 90.5, 44, 864, 31.5},
    {"L20", 119.5, 119.5, 59.8, 44, 864, 31.5},
    {"RTX 3090", 71, 71, 35.6, 23.5, 936, 31.5},
    {"RTX 4090", 165.2, 165.2, 82.6, 23.5, 1008, 31.5},
    {"T4", 0, 65, 8.1, 14.5, 320, 15.75},
    {"V100 32", 0, 125, 15.7, 31.5, 900, 150},
    {"V100 32GB", 0, 125, 15.7, 31.5, 900, 150},
    {"V100", 0, 125, 15.7, 15.5, 900, 150},
};

using Words = std::vector<std::string>;

Words split_words(std::string_view name) {
  Words words = {""};
  for (const char letter : name) {
    if (std::string_view(" -_/").find(letter) != std::string_view::npos) {
      words.emplace_back();
    } else {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    }
  }
  // RTX4090; and a number says enough without its RTX.
  for (auto& word : words) {
    if (word.starts_with("rtx")) word.erase(0, 3);
  }
  std::erase(words, "");
  return words;
}

// Whole words: an A10G is no A10, and a 3090 Ti is no 3090.
bool fits(const GpuModel& gpu, const Words& name) {
  const auto has = [&name](const std::string& word) { return std::ranges::count(name, word) > 0; };
  return std::ranges::all_of(split_words(gpu.name), has) && !has("ti") && !has("laptop") &&
         !has("d");
}

}  // namespace

double GpuModel::flops(DType dtype) const {
  switch (dtype) {
    case DType::kBF16:
      return bf16 * 1e12;
    case DType::kF16:
      return fp16 * 1e12;
    case DType::kF32:
      return fp32 * 1e12;
    default:
      return 0;
  }
}

const GpuModel* find_gpu(std::string_view device) {
  const auto words = split_words(device);
  const auto* found =
      std::ranges::find_if(kGpus, [&](const GpuModel& gpu) { return fits(gpu, words); });
  return found == std::end(kGpus) ? nullptr : found;
}

std::string known_gpus() {
  std::string names;
  for (const auto& gpu : kGpus) {
    if (gpu.name.ends_with("GB")) continue;  // written in another way
    if (!names.empty()) names += ", ";
    for (const char letter : gpu.name) names += letter == ' ' ? '-' : letter;
  }
  return names;
}

}  // namespace skein::report

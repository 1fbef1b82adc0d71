// Compiles the kernels once per instruction set and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "attention/kernels/kernels.cpp"
// Between the portable target and AVX2 nothing is worth its build time, and
// what AVX3_DL adds to AVX3 are integer instructions.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#include "hwy/foreach_target.h"  // must come before highway.h
//
#include "attention/kernels/decode-inl.h"
#include "attention/kernels/dropout-inl.h"
#include "attention/kernels/kernels.h"
#include "attention/kernels/math-inl.h"
#include "attention/kernels/observe-inl.h"
#include "attention/kernels/product-inl.h"
#include "attention/kernels/softmax-inl.h"
#include "attention/kernels/storage-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace regard::kernels::HWY_NAMESPACE {

// Every accumulator starts from another value: a compiler folds equal ones,
// and the loop would report more than the processor can do.
double MultiplyAddBurst(Index rounds, float* sink) {
  const D d;
  constexpr int kCount = 12;
  V sum[kCount];
  for (int i = 0; i < kCount; ++i) sum[i] = hn::Iota(d, static_cast<float>(i) + sink[i]);
  const V factor = hn::Set(d, 0.999f + sink[kCount]), step = hn::Set(d, 0.5f);
  for (Index round = 0; round < rounds; ++round)
    for (int i = 0; i < kCount; ++i) sum[i] = hn::MulAdd(sum[i], factor, step);
  for (int i = 0; i < kCount; ++i) sink[i] = hn::GetLane(hn::SumOfLanes(d, sum[i]));
  return 2.0 * kCount * kLanes * static_cast<double>(rounds);
}

std::uint64_t SumWords(const std::uint64_t* words, Index count) {
  const hn::ScalableTag<std::uint64_t> d;
  constexpr Index kStreams = 4, kLine = 8;
  const Index lanes = static_cast<Index>(hn::Lanes(d)), part = count / kStreams;
  hn::Vec<decltype(d)> sums[kStreams];
  for (auto& sum : sums) sum = hn::Zero(d);
  for (Index i = 0; i < part; i += kLine)
    REGARD_UNROLL for (int s = 0; s < kStreams; ++s) for (Index j = i; j < i + kLine; j += lanes) sums[s] =
        hn::Add(sums[s], hn::LoadU(d, words + s * part + j));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3]))));
}

static_assert(kColumnTile >= narrowest_panel);

const Kernels* Table() {
#if HWY_TARGET == HWY_EMU128
  constexpr const char* name = "portable";
#elif HWY_TARGET == HWY_SSE4
  constexpr const char* name = "SSE4";
#elif HWY_TARGET == HWY_AVX2
  constexpr const char* name = "AVX2";
#elif HWY_TARGET == HWY_AVX3
  constexpr const char* name = "AVX-512";
#else
  constexpr const char* name = "native";
#endif
  static const Kernels table{name,
                             kLanes,
                             kRowTile,
                             kColumnTile,
                             RunAnyProduct,
                             ProductSteps,
                             RunSelectedProduct,
                             DotRows,
                             WeighRows,
                             PackInterleaved,
                             PackPanels,
                             WidenRows,
                             NarrowRows,
                             AllFinite,
                             ScaleRows,
                             RowDots,
                             RunAnySoftmaxStep,
                             RunSoftmaxGradient,
                             RunWeights,
                             ColumnSums,
                             ColumnMaxima,
                             DiagonalSums,
                             DistanceSums,
                             FindAbove,
                             RunHide,
                             RunAllVisible,
                             RunMarkVisible,
                             RunAddBias,
                             RunSoftcap,
                             RunSoftcapChain,
                             RunAlibi,
                             RunDropoutFactors,
                             RunDropout,
                             RunScale,
                             AddRows,
                             MultiplyAddBurst,
                             SumWords};
  return &table;
}

}  // namespace regard::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <strings.h>

#include <atomic>
#include <cstdlib>

#include "regard/error.h"
#include "regard/instruction_set.h"

namespace regard {
namespace kernels {
namespace {

HWY_EXPORT(Table);

struct Choice {
  std::int64_t target;
  const Kernels* table;
};

// Best first.
const std::vector<Choice>& choices() {
  static const std::vector<Choice> all = [] {
    std::vector<Choice> found;
    hwy::SetSupportedTargetsForTest(0);
    const std::int64_t supported = hwy::SupportedTargets() & HWY_TARGETS;
    for (int bit = 0; bit < 63; ++bit) {
      const std::int64_t target = std::int64_t{1} << bit;
      if (!(supported & target)) continue;
      hwy::SetSupportedTargetsForTest(target);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      found.push_back({target, HWY_DYNAMIC_DISPATCH(Table)()});
    }
    hwy::SetSupportedTargetsForTest(0);
    return found;
  }();
  return all;
}

const Kernels* find(const std::string& name) {
  for (const Choice& choice : choices())
    if (strcasecmp(name.c_str(), choice.table->name) == 0) return choice.table;
  std::string known;
  for (const Choice& choice : choices()) known += (known.empty() ? "" : ", ") + std::string(choice.table->name);
  throw ArgumentError("instruction set '" + name + "' can't run here; this processor has: " + known);
}

const Kernels* preferred() {
  const char* forced = std::getenv("REGARD_CPU");
  return forced && *forced ? find(forced) : choices().front().table;
}

std::atomic<const Kernels*> chosen{nullptr};

}  // namespace

const Kernels& active() {
  const Kernels* table = chosen.load(std::memory_order_acquire);
  if (!table) {
    table = preferred();
    chosen.store(table, std::memory_order_release);
  }
  return *table;
}

}  // namespace kernels

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const auto& choice : kernels::choices()) names.emplace_back(choice.table->name);
  return names;
}

std::string instruction_set() { return kernels::active().name; }

void set_instruction_set(const std::string& name) {
  kernels::chosen.store(name.empty() ? kernels::choices().front().table : kernels::find(name),
                        std::memory_order_release);
}

}  // namespace regard
#endif  // HWY_ONCE

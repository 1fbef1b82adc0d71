// The table. A name says kind or composition, length, head_dim and dtype.
#include <algorithm>
#include <string>

#include "regard/bench.h"

namespace regard {
namespace {

std::string number(Index value) { return std::to_string(value); }

// Heads keep the work of a case near that of eight heads at 1024.
Index heads_for(Index length) { return length <= 1024 ? 8 : length <= 2048 ? 4 : 2; }

const char* suffix(DType storage) {
  switch (storage) {
    case DType::bf16: return "/bf16";
    case DType::f16: return "/f16";
    case DType::i8: return "/i8";
    default: return "/f32";
  }
}

BenchCase square(const std::string& what, Index length, Index dim, DType storage = DType::f32) {
  BenchCase c;
  c.name = what + "/n" + number(length) + "/d" + number(dim) + suffix(storage);
  c.storage = storage;
  c.q_heads = c.kv_heads = heads_for(length);
  c.q_len = c.kv_len = length;
  c.head_dim = c.value_dim = dim;
  return c;
}

void add_full(std::vector<BenchCase>& all) {
  for (const Index dim : {64, 128})
    for (const Index length : {128, 512, 1024, 2048, 4096}) all.push_back(square("full", length, dim));
  for (const Index dim : {32, 40, 80, 96, 256}) all.push_back(square("full", 1024, dim));
  all.push_back(square("full", 1000, 64));
  BenchCase narrow = square("full", 1024, 64);
  narrow.name = "full/n1024/d64v32/f32";
  narrow.value_dim = 32;
  all.push_back(narrow);
  BenchCase one = square("full", 1024, 64);
  one.name = "full/h1n1024/d64/f32";
  one.q_heads = one.kv_heads = 1;
  all.push_back(one);
}

void add_variants(std::vector<BenchCase>& all) {
  const auto add = [&](const std::string& what, BenchVariant variant, Index length) {
    all.push_back(square(what, length, 64));
    all.back().variant = variant;
  };
  for (const Index length : {1024, 2048, 4096}) add("causal", BenchVariant::causal, length);
  add("window256", BenchVariant::window, 8192);
  add("documents512", BenchVariant::documents, 8192);
  add("padding-half", BenchVariant::padding, 2048);
  add("boolean", BenchVariant::boolean, 1024);
  add("bias", BenchVariant::bias, 1024);
  add("dropout10", BenchVariant::dropout, 1024);
  add("softcap", BenchVariant::softcap, 1024);
  add("alibi", BenchVariant::alibi, 1024);
  add("user-modifier", BenchVariant::user, 1024);
}

void add_backward(std::vector<BenchCase>& all) {
  const auto add = [&](const std::string& what, BenchVariant variant, Index length, Index dim) {
    all.push_back(square(what, length, dim));
    all.back().variant = variant;
    all.back().kind = BenchKind::backward;
  };
  for (const Index dim : {64, 128})
    for (const Index length : {512, 1024, 2048}) add("backward", BenchVariant::plain, length, dim);
  add("backward-causal", BenchVariant::causal, 2048, 64);
}

void add_storage(std::vector<BenchCase>& all) {
  for (const DType storage : {DType::bf16, DType::f16, DType::i8})
    for (const Index dim : {64, 128}) all.push_back(square("full", 1024, dim, storage));
  for (const DType storage : {DType::bf16, DType::f16}) {
    all.push_back(square("backward", 1024, 64, storage));
    all.back().kind = BenchKind::backward;
  }
}

void add_short(std::vector<BenchCase>& all) {
  struct Short {
    Index batch, heads, length, dim;
  };
  for (const Short s : {Short{256, 4, 8, 32}, Short{128, 4, 16, 32}, Short{64, 8, 32, 64}, Short{32, 8, 64, 64}})
    for (const bool backward : {false, true}) {
      BenchCase c = square("", s.length, s.dim);
      c.name = (backward ? "short-backward/b" : "short/b") + number(s.batch) + "h" + number(s.heads) + "n" +
               number(s.length) + "/d" + number(s.dim) + "/f32";
      c.batch = s.batch;
      c.q_heads = c.kv_heads = s.heads;
      c.kind = backward ? BenchKind::backward : BenchKind::forward;
      all.push_back(c);
    }
  BenchCase one = square("", 8, 16);
  one.name = "call/b1h1n8/d16/f32";
  one.q_heads = one.kv_heads = 1;
  all.push_back(one);
}

void add_decode(std::vector<BenchCase>& all) {
  struct Decode {
    Index q_heads, kv_heads, keys, dim;
    DType storage = DType::f32;
  };
  for (const Decode s :
       {Decode{32, 8, 4096, 128}, Decode{32, 8, 4096, 128, DType::bf16}, Decode{32, 8, 4096, 128, DType::f16},
        Decode{32, 8, 4096, 128, DType::i8}, Decode{32, 32, 4096, 128}, Decode{8, 8, 1024, 64}}) {
    BenchCase c;
    c.kind = BenchKind::decode;
    c.name = "decode/q" + number(s.q_heads) + "kv" + number(s.kv_heads) + "/n" + number(s.keys) + "/d" + number(s.dim) +
             suffix(s.storage);
    c.storage = s.storage;
    c.q_heads = s.q_heads;
    c.kv_heads = s.kv_heads;
    c.q_len = 1;
    c.kv_len = s.keys;
    c.head_dim = c.value_dim = s.dim;
    all.push_back(c);
  }
}

void add_observe(std::vector<BenchCase>& all) {
  BenchCase rows = square("observe-rows", 2048, 64);
  rows.kind = BenchKind::observe_rows;
  all.push_back(rows);
  BenchCase everything = square("observe-all", 2048, 64);
  everything.kind = BenchKind::observe_all;
  all.push_back(everything);
}

std::vector<BenchCase> make_table() {
  std::vector<BenchCase> all;
  add_full(all);
  add_variants(all);
  add_backward(all);
  add_storage(all);
  add_short(all);
  add_decode(all);
  add_observe(all);
  return all;
}

}  // namespace

const std::vector<BenchCase>& bench_cases() {
  static const std::vector<BenchCase> table = make_table();
  return table;
}

BenchCase shrunk(const BenchCase& full, Index length) {
  BenchCase c = full;
  const Index group = full.q_heads / full.kv_heads;
  c.batch = std::min<Index>(2, full.batch);
  c.kv_heads = std::clamp<Index>(4 / group, 1, full.kv_heads);
  c.q_heads = c.kv_heads * group;
  c.q_len = std::min(full.q_len, length);
  c.kv_len = std::min(full.kv_len, length);
  return c;
}

}  // namespace regard

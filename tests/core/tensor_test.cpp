// Tensors and the views on them.
#include "regard/tensor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "refusal.h"

namespace regard {
namespace {

using testing::message_of;

TEST(shape, counts_its_elements_and_refuses_what_63_bits_can_not_count) {
  const Index large = Index{1} << 32;
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({2, 3, 4}), 24);
  EXPECT_EQ(element_count({large, 0, large}), 0);
  EXPECT_EQ(element_count({large, (Index{1} << 31) - 1}), 9223372032559808512);
  EXPECT_EQ(message_of([&] {
              element_count({large, large / 2});
            }),
            "shape [4294967296,2147483648] has more elements than 63 bits can count");
  EXPECT_EQ(message_of([&] {
              element_count({large, large});
            }),
            "shape [4294967296,4294967296] has more elements than 63 bits can count");
  EXPECT_EQ(message_of([] { element_count({2, -1}); }), "shape [2,-1] has a negative size");
  EXPECT_EQ(message_of([] { element_count({0, -1}); }), "shape [0,-1] has a negative size");
  EXPECT_EQ(message_of([&] {
              Tensor<float> refused({large, large});
            }),
            "shape [4294967296,4294967296] has more elements than 63 bits can count");
}

TEST(tensor, holds_what_it_was_given) {
  const Tensor<int> none, zero({2, 2}), filled({3}, 7), listed({2, 2}, {1, 2, 3, 4});
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(none.shape(), (Shape{0}));
  for (int value : zero.values()) EXPECT_EQ(value, 0);
  for (int value : filled.values()) EXPECT_EQ(value, 7);
  EXPECT_EQ(listed[3], 4);
  EXPECT_EQ(listed.text(), "[2,2]");
  EXPECT_EQ(Tensor<int>({2, 3, 5}).size(-1), 5);
  EXPECT_EQ(Tensor<int>({2, 3, 5}).size(0), 2);
  EXPECT_EQ(Tensor<int>(Shape{}).count(), 1);
}

TEST(tensor, refuses_a_shape_that_does_not_hold_its_values) {
  EXPECT_EQ(message_of([] { Tensor<int>({2, 3}, {1, 2, 3}); }), "Tensor: shape [2,3] does not hold 3 values");
  EXPECT_EQ(message_of([] { Tensor<int>({2, 3}).reshape({4}); }), "Tensor::reshape: [2,3] can't become [4]");
  EXPECT_EQ(message_of([] { Tensor<int>({2, 3}).view<3>(); }), "Tensor: [2,3] is used where 3 dimensions are needed");
}

TEST(tensor, reshapes_in_place_and_copies_numbers) {
  Tensor<int> a({2, 3}, {1, 2, 3, 4, 5, 6});
  Tensor<int> b = a;
  b.reshape({3, 2});
  b[0] = 9;
  EXPECT_EQ(a[0], 1);
  EXPECT_EQ((b.view<2>()(2, 1)), 6);
}

TEST(tensor, begins_on_a_cache_line) {
  for (Index count = 1; count < 20; ++count) {
    const Tensor<float> tensor({count});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % 64, 0u);
  }
}

TEST(view, of_a_tensor_is_row_major) {
  Tensor<int> tensor({2, 3, 4});
  for (Index i = 0; i < 24; ++i) tensor[i] = static_cast<int>(i);
  const auto view = tensor.view<3>();
  EXPECT_EQ(view.strides(), (std::array<Index, 3>{12, 4, 1}));
  EXPECT_EQ(view(1, 2, 3), 23);
  EXPECT_EQ(view[1](0, 2), 14);
  EXPECT_EQ(view.text(), "[2,3,4]");
  view(0, 0, 1) = 50;
  EXPECT_EQ(tensor[1], 50);
}

TEST(view, slices_and_transposes_without_copying) {
  const Tensor<int> tensor({3, 4}, {0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23});
  const auto part = tensor.view<2>().slice(0, 1, 3).slice(1, 2, 4);
  EXPECT_EQ(part.sizes(), (std::array<Index, 2>{2, 2}));
  EXPECT_EQ(part.data(), tensor.data() + 6);
  const auto turned = part.transposed(0, 1);
  EXPECT_EQ(turned(0, 1), 22);
  EXPECT_EQ(packed(turned).shape(), (Shape{2, 2}));
  const auto copy = packed(turned);
  EXPECT_EQ((std::vector<int>(copy.values().begin(), copy.values().end())), (std::vector<int>{12, 22, 13, 23}));
  EXPECT_TRUE(tensor.view<2>().slice(0, 2, 2).empty());
}

TEST(view, strides_may_be_zero_or_negative) {
  const Tensor<int> tensor({3}, {1, 2, 3});
  const auto backwards = packed(View<const int, 2>(tensor.data() + 2, {2, 3}, {0, -1}));
  EXPECT_EQ((std::vector<int>(backwards.values().begin(), backwards.values().end())),
            (std::vector<int>{3, 2, 1, 3, 2, 1}));
}

TEST(KeepMemory, gives_a_tensor_the_memory_of_one_that_went) {
  constexpr Index count = 1 << 16;
  const KeepMemory keep;
  const float* place = nullptr;
  {
    const Tensor<float> first({count}, 1.0f);
    place = first.data();
  }
  const Tensor<float> smaller({count - 64});  // nearly its size
  EXPECT_EQ(smaller.data(), place);
  EXPECT_EQ(smaller[count - 65], 0.0f);
  const Tensor<float> other({count});
  EXPECT_NE(other.data(), place);
}

TEST(KeepMemory, may_go_before_or_after_what_it_kept) {
  auto outer = std::make_unique<KeepMemory>();
  auto tensor = std::make_unique<Tensor<float>>(Shape{1 << 15}, 3.0f);
  {
    const KeepMemory inner;
    Tensor<float>(Shape{1 << 15}, 4.0f);
  }
  outer.reset();
  EXPECT_EQ((*tensor)[77], 3.0f);
  tensor.reset();
  EXPECT_EQ(Tensor<float>({1 << 15})[5], 0.0f);
}

TEST(view, knows_whether_it_was_given) {
  const Tensor<int> empty({0, 3});
  EXPECT_FALSE((View<int, 2>{}).given());
  EXPECT_TRUE(empty.view<2>().given());
  EXPECT_TRUE(empty.view<2>().empty());
  EXPECT_EQ(packed(empty.view<2>()).shape(), (Shape{0, 3}));
}

}  // namespace
}  // namespace regard

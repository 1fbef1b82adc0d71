// A forced instruction set really runs.
#include <set>

#include "attention/cases.h"
#include "regard/plan.h"

namespace regard {
namespace {

using namespace testing;

TEST(instruction_sets, the_forced_one_is_in_use_and_signs_the_plan) {
  const auto in = random_inputs({.q_len = 4, .kv_len = 4});
  for (const std::string& name : instruction_sets()) {
    set_instruction_set(name);
    EXPECT_EQ(instruction_set(), name);
    EXPECT_EQ(plan_attend(in.q, in.k, in.v).kernel.rfind(name + ", register tile ", 0), 0u);
  }
  set_instruction_set("PorTable");
  EXPECT_EQ(instruction_set(), "portable");
  set_instruction_set("");
  EXPECT_EQ(instruction_set(), instruction_sets().front());
  EXPECT_EQ(instruction_sets().back(), "portable");
}

// Vector widths change the order of a row's sums, so long rows differ in their
// last bits: proof that other code ran.
TEST(instruction_sets, of_different_widths_differ_in_some_bit) {
  const auto in =
      random_inputs({.q_heads = 4, .kv_heads = 4, .q_len = 64, .kv_len = 500, .head_dim = 64, .value_dim = 64});
  std::set<std::vector<float>> answers;
  std::set<std::string> tiles;
  on_each_instruction_set([&] {
    answers.insert(list(attend(in.q, in.k, in.v).out));
    const std::string kernel = plan_attend(in.q, in.k, in.v).kernel;
    tiles.insert(kernel.substr(kernel.find(',')));
  });
  EXPECT_GE(answers.size(), tiles.size());
  if (instruction_sets().size() > 1) {
    EXPECT_GT(answers.size(), 1u);
  }
}

TEST(instruction_sets, an_unknown_name_is_answered_with_the_known_ones) {
  std::string known;
  for (const std::string& name : instruction_sets()) known += (known.empty() ? "" : ", ") + name;
  const std::string before = instruction_set();
  EXPECT_EQ(message_of([] { set_instruction_set("abacus"); }),
            "instruction set 'abacus' can't run here; this processor has: " + known);
  EXPECT_EQ(instruction_set(), before);
}

}  // namespace
}  // namespace regard

#include "regard/digest.h"

#include <gtest/gtest.h>

namespace regard {
namespace {

// Test vectors published with the function, http://www.isthe.com/chongo/tech/comp/fnv.
TEST(Digest, is_fnv1a) {
  EXPECT_EQ(fnv1a(""), 0xcbf29ce484222325u);
  EXPECT_EQ(fnv1a("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(fnv1a("foobar"), 0x85944171f73967e8u);
}

TEST(Digest, of_pieces_is_that_of_the_whole) { EXPECT_EQ(fnv1a("bar", fnv1a("foo")), fnv1a("foobar")); }

}  // namespace
}  // namespace regard

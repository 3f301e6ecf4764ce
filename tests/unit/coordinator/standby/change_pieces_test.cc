#include "coordinator/standby/change_pieces.h"

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "proto/rpc/channel.h"

namespace longhaul::coordinator {
namespace {

using ::google::protobuf::util::MessageDifferencer;

v1::StoreChange ChangeOf(uint64_t number, size_t bytes) {
  v1::StoreChange change;
  change.set_number(number);
  v1::StoreStatement& statement = *change.add_statements();
  statement.set_sql("INSERT INTO runs VALUES (?)");
  std::string& blob = *statement.add_values()->mutable_blob();
  for (size_t k = 0; k < bytes; ++k) blob += static_cast<char>(k * 131 + k / 257);
  return change;
}

TEST(ChangePieces, JoinToTheChangesThatWereCut) {
  ChangeJoiner joiner;
  uint64_t number = 0;
  for (const size_t bytes : {size_t{0}, kChunkBytes - 100, kChunkBytes, 2 * kChunkBytes + 1,
                             3 * kMaxMessageBytes, size_t{1}}) {
    const v1::StoreChange change = ChangeOf(++number, bytes);
    const std::vector<v1::StoreChangePiece> pieces = CutChange(change);
    EXPECT_EQ(pieces.size(), (change.ByteSizeLong() + kChunkBytes - 1) / kChunkBytes);
    for (size_t k = 0; k < pieces.size(); ++k) {
      v1::FollowedMessage message;
      *message.mutable_change() = pieces[k];
      EXPECT_LT(message.ByteSizeLong(), kMaxMessageBytes);
      const auto joined = joiner.Add(pieces[k]);
      ASSERT_TRUE(joined.ok()) << joined.status();
      ASSERT_EQ(joined->has_value(), k + 1 == pieces.size()) << k;
      if (*joined) {
        EXPECT_TRUE(MessageDifferencer::Equals(**joined, change)) << bytes;
      }
    }
  }
}

TEST(ChangePieces, AChangeOfNothingIsOnePiece) {
  const std::vector<v1::StoreChangePiece> pieces = CutChange({});
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_TRUE(ChangeJoiner().Add(pieces[0])->has_value());
}

TEST(ChangePieces, WhatIsNoChangeIsRefused) {
  ChangeJoiner joiner;
  v1::StoreChangePiece piece;
  piece.set_bytes("\x0a\xff no message");
  piece.set_ends(true);
  EXPECT_TRUE(absl::IsDataLoss(joiner.Add(piece).status()));
  // And more than a change may have, however it comes.
  piece.set_ends(false);
  piece.set_bytes(std::string(size_t{64} << 20, 'x'));
  for (int k = 0; k < 4; ++k) ASSERT_TRUE(joiner.Add(piece).ok()) << k;
  piece.set_bytes("x");
  EXPECT_TRUE(absl::IsDataLoss(joiner.Add(piece).status()));
}

}  // namespace
}  // namespace longhaul::coordinator

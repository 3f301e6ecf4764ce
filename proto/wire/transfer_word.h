// The message of the worker that receives a copy of checkpoint files to the worker that sends the
// files (worker/shards/shard_transfers.h), on the link's control lane. The sender sends only the
// files, coded (worker/checkpoint/shard_coding.h), on the bulk lane. Pure functions.
//
//   8 bytes, little-endian     how many coded bytes the sender may send in total, counted over all
//                              files; all ones: every file is whole and on the receiver's disk
//   any other number of bytes  why the receiver refuses the copy, as text
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "proto/wire/little_endian.h"

namespace longhaul::wire {

// The share of the line's rate that a copy takes while training keeps the line busy. Senders pace
// themselves by this share, and the coordinator derives its time limits from this share. A line
// that was not measured is assumed to have kAssumedLineBitsPerSecond.
inline constexpr double kLeastCopyShare = 0.02;
inline constexpr double kAssumedLineBitsPerSecond = 10e6;

inline constexpr size_t kTransferWordBytes = 8;
inline constexpr size_t kMaxRefusalBytes = 1000;

struct TransferWord {
  uint64_t may_go_to = 0;  // total of coded bytes that the sender may send, over all files
  bool kept = false;       // every file is whole and on the disk
  std::string refusal;     // why the copy is refused; then the other fields mean nothing
  friend bool operator==(const TransferWord&, const TransferWord&) = default;
};

inline std::string EncodeTransferWord(const TransferWord& word) {
  if (!word.refusal.empty()) {
    std::string text = word.refusal.substr(0, kMaxRefusalBytes);
    if (text.size() == kTransferWordBytes) text += ' ';
    return text;
  }
  const uint64_t value = word.kept ? std::numeric_limits<uint64_t>::max() : word.may_go_to;
  std::string bytes(kTransferWordBytes, '\0');
  PutLe(std::as_writable_bytes(std::span(bytes)), 0, value);
  return bytes;
}

// Cannot fail: any bytes are a valid message. Cuts a text at kMaxRefusalBytes.
inline TransferWord DecodeTransferWord(std::span<const std::byte> bytes) {
  TransferWord word;
  if (bytes.size() == kTransferWordBytes) {
    word.may_go_to = GetLe<uint64_t>(bytes, 0);
    word.kept = word.may_go_to == std::numeric_limits<uint64_t>::max();
    return word;
  }
  const size_t size = bytes.size() < kMaxRefusalBytes ? bytes.size() : kMaxRefusalBytes;
  word.refusal.assign(reinterpret_cast<const char*>(bytes.data()), size);
  if (word.refusal.empty()) word.refusal = "it gave no reason";
  return word;
}

}  // namespace longhaul::wire

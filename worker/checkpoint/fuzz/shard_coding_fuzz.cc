// Any bytes: decoded or refused, in pieces as in one; and what was decoded can be coded again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "base/fuzz/target.h"
#include "worker/checkpoint/shard_coding.h"

LH_FUZZ_TARGET(shard_coding) {
  using namespace longhaul::worker;
  const auto bytes = std::as_bytes(std::span(data, size));
  std::vector<std::byte> whole, pieces, again;
  ShardDecoder at_once, by_pieces, coded;
  const bool ok = at_once.Take(bytes, &whole).ok();
  bool ok_by_pieces = true;
  for (size_t at = 0; at < size && ok_by_pieces; at += 7) {
    ok_by_pieces = by_pieces.Take(bytes.subspan(at, std::min<size_t>(7, size - at)), &pieces).ok();
  }
  if (ok != ok_by_pieces) std::abort();
  if (!ok) return false;
  if (whole != pieces) std::abort();
  for (size_t at = 0; at < whole.size(); at += kShardBlockBytes) {
    const std::string block = EncodeShardBlock(
        std::span(whole).subspan(at, std::min(kShardBlockBytes, whole.size() - at)));
    if (!coded.Take(std::as_bytes(std::span(block)), &again).ok()) std::abort();
  }
  if (again != whole) std::abort();
  return true;
}

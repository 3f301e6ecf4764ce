// How much one member may keep at the coordinator or have under way, and how much all may together.
// Admins, and all callers without TLS, are only bound by the limits on all. docs/design/limits.md
// lists the limits; tests/structure/limits_test.py compares the two. Plain data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace longhaul::coordinator {

// A number for each member that is no admin, and a number for all callers together.
struct MemberLimit {
  size_t of_member = 0, in_all = 0;
};

inline constexpr MemberLimit kMaxUploads{.of_member = 16, .in_all = 64};
// Copies of checkpoint shards that workers send.
inline constexpr MemberLimit kMaxCopies{.of_member = 16, .in_all = 64};
// Streams that follow runs, events or logs.
inline constexpr MemberLimit kMaxFollowers{.of_member = 32, .in_all = 256};
// Blobs that are being sent to users and workers.
inline constexpr MemberLimit kMaxFetches{.of_member = 32, .in_all = 16'384};
// Calls that wait for an answer of the state machine.
inline constexpr MemberLimit kMaxCalls{.of_member = 32, .in_all = 2048};
// TCP connections, on each of which there are up to kMaxCallsPerConnection calls
// (proto/rpc/channel.h).
inline constexpr size_t kMaxConnectionsOfMember = 32;
// The time of one processor that answers to a member's questions take: so much of each second, and
// so much at once.
inline constexpr double kTimeShareOfMember = 0.1;
inline constexpr absl::Duration kTimeBurstOfMember = absl::Seconds(2);
// Streams of workers, of which each worker needs one.
inline constexpr MemberLimit kMaxWorkerStreams{.of_member = 4, .in_all = 4096};
// The part of each limit on all that only admins get, so that nobody keeps them out.
inline constexpr size_t kKeptForAdmins = 8;

// Runs that the coordinator keeps; those of them that wait for workers.
inline constexpr MemberLimit kMaxRuns{.of_member = 1'000, .in_all = 10'000};
inline constexpr MemberLimit kMaxQueuedRuns{.of_member = 100, .in_all = 500};
// Bytes of run files and of the names of their data, of all runs that the coordinator keeps.
inline constexpr MemberLimit kMaxRunBytes{.of_member = 64 << 20, .in_all = size_t{1} << 30};
// Different lists of data sets and of weights that runs name.
inline constexpr size_t kMaxListsOfMember = 256;
// Bytes of the blobs that a user has sent: this part of the disk, unless a flag says otherwise.
inline constexpr uint64_t kDiskPartsOfMember = 4;
// A blob counts as at least this much, because a file takes whole blocks of the disk.
inline constexpr uint64_t kLeastBlobBytes = 4096;
// An upload ends when fewer than kLeastUploadBytes have come within kIdleUpload. A sender that
// drips holds room on the disk and one of its places for as long as one that is silent. Bytes are
// seen in messages of up to kChunkBytes (proto/rpc/channel.h), so this asks for 28 kbit/s.
inline constexpr absl::Duration kIdleUpload = absl::Minutes(5);
inline constexpr uint64_t kLeastUploadBytes = 64 << 10;

// The limits of a coordinator. Tests set lower ones.
struct MemberLimits {
  MemberLimit uploads = kMaxUploads, copies = kMaxCopies, followers = kMaxFollowers,
              fetches = kMaxFetches, calls = kMaxCalls, worker_streams = kMaxWorkerStreams,
              runs = kMaxRuns, queued_runs = kMaxQueuedRuns, run_bytes = kMaxRunBytes;
  size_t connections = kMaxConnectionsOfMember, lists = kMaxListsOfMember;
  absl::Duration idle_upload = kIdleUpload;
  double time_share = kTimeShareOfMember;
  absl::Duration time_burst = kTimeBurstOfMember;
  uint64_t blob_bytes = 0;  // of each user; 0: the disk's size by kDiskPartsOfMember
};

}  // namespace longhaul::coordinator

// Memory of a stage, term by term. Pure. All sizes in bytes.
#ifndef LONGHAUL_COORDINATOR_PLANNER_MEMORY_H_
#define LONGHAUL_COORDINATOR_PLANNER_MEMORY_H_

#include <cstdint>

#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// Trained parameters of a stage, by the model's descriptor (run/model/family.h); with LoRA these
// are the adapters alone. `vocabulary` is the tokenizer's, here and below; embedding and head have
// a row for each of its tokens, or as many as the model says. The first stage has the embedding,
// the last one the final norm and the head. A tied head is the embedding's matrix; both stages hold
// it.
uint64_t StageParameters(const ModelSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                         bool last);

// Trained parameters that one rank of the run's group holds. Ranks may differ by a row of the
// vocabulary; the larger number counts.
uint64_t RankParameters(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                        bool last);

// Optimizer state of a stage: AdamW has two moments for each parameter, Muon one for each element
// of a block's matrices. Counts numbers, whatever their type.
uint64_t StageMoments(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                      bool last);
// Bytes of a boundary's tables on one side, where its codec predicts by tokens; else 0.
uint64_t TableBytes(const RunSpec& spec, uint32_t vocabulary);
// Bytes of a stage's state, as a checkpoint, a copy and a snapshot in memory have it: parameters
// and optimizer state in fp32, and the tables of the boundary below. A replica has its own shard of
// the optimizer state, of the parameters where the other replicas hold rounded ones, and what it
// has not sent yet.
uint64_t StageStateBytes(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                         bool last);

// Memory of the worker's program and its libraries.
inline constexpr uint64_t kProgramBytes = uint64_t{256} << 20;

struct StageMemory {
  // Memory of the device; in a group, of each rank's device.
  uint64_t fixed = 0;       // whatever the depth is
  uint64_t per_flight = 0;  // for each microbatch in flight
  // Memory of a GPU's host; 0 on a CPU, where `fixed` has all.
  uint64_t host = 0;
  uint64_t At(uint32_t depth) const { return fixed + depth * per_flight; }
};
// fixed      = 8 bytes a parameter: fp32 value and gradient;
//            + with LoRA what is frozen: in the type of products, norms in fp32
//            + 4 bytes a moment, or 2 where they are kept in bf16: of AdamW two a parameter
//            + on a CPU the snapshots, and what comes and goes of a tied matrix, as in `host`
//            + with Muon what the update of one matrix needs, the largest: 16 bytes an element and
//              8 bytes an element of its product with its transpose
//            + with moments in bf16 on a GPU 64 MiB, in which they are made fp32 piece by piece
//            + with bf16 the casts of blocks' and head's parameters, 2 bytes each
//            + what autograd keeps of one microbatch, or with Recompute::kBlocks of one block of
//            it,
//              while it is recomputed
//            + 4 boundary tensors (one being received and sent in each direction)
//            + of each boundary whose codec predicts by tokens the tables, and 2 boundary tensors
//            + on the last stage twice the logits of one microbatch in fp32 while it is computed:
//              those, and their copy or gradient; where they are in chunks
//              (run/model/loss_chunks.h) those of a chunk, and besides what autograd keeps of a
//              chunk
//            + kProgramBytes
//            + on a GPU 192 MiB of workspaces, which cuBLAS keeps for each stream and thread, and
//              what passes need for as long as one runs: 8 boundary tensors
// per_flight = what autograd keeps of one microbatch of B x T tokens:
//              of each block and, on the last stage, of the final norm what its family says
//              (Family::kept_by_block), 4 bytes a value, or with bf16 2 bytes where products keep
//              it; last stage: the log-softmax of the logits, too, where they are one chunk;
//              with LoRA also as many numbers as each adapter's rank; on a GPU in fp32, or with
//              documents apart, keys and values for every head of queries;
//            + the stage's input and output
//            + on a GPU, where each has memory of its own that was set apart when its passes were
//              recorded: what its forward needs in passing, a boundary tensor and on the last stage
//              the logits, in fp32 and as the products compute, where they are one chunk; and what
//              LibTorch takes too much, since it takes 20 MiB at a time
//            With recomputation only the stage's input and output, on a GPU, too; of blocks also
//            the inputs of all but the first.
//            + where microbatches go in slices keys and values of the earlier ones, for each later
//              one; with recomputation once; on a GPU also copies of theirs, and gradients
// host       = a checkpoint's snapshot (StageStateBytes), or two where the run takes them again and
//              again
//            + at an end of a tied matrix what the other end sends of its gradient in a step, and
//              32 MiB of the own one on its way
//            + where a codec predicts by tokens 2 tables more: on their way to a snapshot, or read
//              from a checkpoint, which for a stage in the middle has 2 files of them
//            + with replicas, which step a stage together: the own part's moments, which are not in
//              `fixed` then, with 8 bytes a parameter of the own part; 12 bytes a parameter of all
//              other parts for messages; where gradients leave something for later steps 4 bytes a
//              parameter; on a GPU a copy of values and gradients; of a group those of all ranks,
//              and 8 bytes a parameter for whole values and gradients. Of replicas that train apart
//              (local-sgd) moments are whole and in `fixed`; 4 bytes a parameter of the own part
//              for the outer momentum, and 12 bytes a parameter for anchors and differences
//            + 4 boundary tensors, encoded; in clean validation they are as large as in fp32
//            + 64 MiB, through which snapshots come from the GPU
//            + kProgramBytes
// Where steps overlap (ScheduleTraits::overlaps_steps) parameters, gradients and casts are there
// twice, and on a GPU what passes keep, which are recorded of both versions; a snapshot has the
// parameters of both. In a group of ranks (group.tensor) parameters, gradients, moments, casts and
// logits are a rank's share, and so is what autograd keeps between split matrices. Norms, the
// residual and boundary tensors are whole on every rank; with group.sequence norms and residuals
// are those of its tokens. There is a snapshot more: what ranks have copied, before it is put
// together. On a CPU the snapshots and kProgramBytes, which the ranks' process has once, are shared
// among its devices. On a GPU each rank has its own 64 MiB in `host`. What NCCL takes for itself is
// not counted. Attention keeps no T x T matrix: the CPU's and the GPU's fused kernels do not.
// memory_parity_test and memory_gpu_test compare with what LibTorch takes.
StageMemory MemoryOf(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                     bool last, bool on_gpu = false);

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_PLANNER_MEMORY_H_

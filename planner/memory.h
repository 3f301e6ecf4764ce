// Memory of a stage, term by term. Pure. All sizes in bytes.
#pragma once

#include <cstdint>

#include "run/file/run_spec.h"

namespace longhaul::coordinator {

// Number of trained parameters of a stage, by the model's descriptor (run/model/family.h); with
// LoRA only the adapters. `vocabulary` is the tokenizer's, here and below; embedding and head have
// a row for each of its tokens, or as many as the model says. `first`: the stage has the embedding.
// `last`: it has the final norm and the head. A tied head is the embedding's matrix; both stages
// hold it.
uint64_t StageParameters(const ModelSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                         bool last);

// Number of trained parameters that one rank of the run's group holds. Ranks may differ by a row of
// the vocabulary; the larger number counts.
uint64_t RankParameters(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                        bool last);

// Number of values in a stage's optimizer state, whatever their type. AdamW has two for each
// parameter. Muon has one for each element of a block's matrices, and AdamW's two for the rest.
uint64_t StageMoments(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                      bool last);
// Bytes of the tables that a codec that predicts by tokens has at one end of a boundary; 0 for
// other codecs.
uint64_t TableBytes(const RunSpec& spec, uint32_t vocabulary);
// Bytes of a stage's state in a checkpoint, a copy or a snapshot in memory: parameters and
// optimizer state in fp32, and the tables of the boundary below. Where steps overlap, the
// parameters of both steps. One of several replicas has only its own shard of the optimizer state.
// In addition it has its own shard of the parameters if the other replicas hold rounded ones, and
// the amounts that it has not sent yet.
uint64_t StageStateBytes(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                         bool last);

// Memory of the worker's program and its libraries.
inline constexpr uint64_t kProgramBytes = uint64_t{256} << 20;

struct StageMemory {
  // Memory of the device; in a group, of each rank's device.
  uint64_t fixed = 0;       // for any depth
  uint64_t per_flight = 0;  // for each microbatch in flight
  // Memory of a GPU's host; 0 on a CPU, where `fixed` includes it.
  uint64_t host = 0;
  // The device's memory with `depth` microbatches in flight.
  uint64_t At(uint32_t depth) const { return fixed + depth * per_flight; }
};
// The memory of a stage, as the worker allocates it (worker/stage). Sizes are sums of these terms:
//
// fixed, on the device:
//   - each parameter: 8 bytes, fp32 value and gradient; with LoRA frozen parameters instead in the
//     type of products, norms in fp32
//   - each number of optimizer state: 4 bytes, or 2 in bf16. On a GPU, state in bf16 needs 64 MiB
//     more, in which it is made fp32 piece by piece
//   - on a CPU: the terms of `host` below, without encoded boundary tensors, the 64 MiB and
//     kProgramBytes
//   - with Muon: the update of the largest matrix, 16 bytes an element, and 8 bytes an element of
//     its product with its transpose
//   - with bf16: casts of the parameters of blocks and head, 2 bytes each
//   - with recomputation: what autograd keeps of one microbatch (Recompute::kStage) or of one block
//     of it (kBlocks), while it is recomputed
//   - 4 boundary tensors: one received and one sent in each direction
//   - for each boundary whose codec predicts by tokens: its tables and 2 boundary tensors
//   - last stage: twice the logits of one microbatch in fp32, the logits and a copy or
//     gradient. Where the loss is computed in chunks (run/model/loss_chunks.h): twice those of one
//     chunk, and what autograd keeps of it
//   - kProgramBytes
//   - on a GPU: 192 MiB of workspaces that cuBLAS keeps for each stream and thread, and 8 boundary
//     tensors that passes need while one runs
//
// per_flight, on the device, for each microbatch of B x T tokens in flight:
//   - what autograd keeps of each block and, on the last stage, of the final norm, by the family
//     (Family::kept_by_block): 4 bytes a value, 2 bytes where products keep it in bf16. Last stage:
//     also the log-softmax of the logits where they are one chunk. With LoRA: also as many numbers
//     as each adapter's rank. On a GPU in fp32, or with documents apart: keys and values for every
//     head of queries
//   - the stage's input and output
//   - on a GPU, whose CUDA graphs have memory of their own for each microbatch: what its forward
//     needs in passing, a boundary tensor and on the last stage the logits (in fp32 and in the type
//     of products, where they are one chunk); and LibTorch's waste, as it takes 20 MiB at a time
//   - with recomputation only the stage's input and output, on a GPU, too; with kBlocks also the
//     inputs of all blocks but the first
//   - with slices: keys and values of earlier slices, for each later one; with recomputation once.
//     On a GPU also copies of them, and gradients
//
// host, beside a GPU:
//   - a checkpoint's snapshot (StageStateBytes), or two where the run takes snapshots repeatedly
//   - at an end of a tied matrix: the gradient that the other end sends in a step, and 32 MiB
//     of the own one under way
//   - where a codec predicts by tokens: 2 tables more, on their way to a snapshot, or read from a
//     checkpoint (a stage in the middle reads 2 files of them)
//   - with replicas that update a stage together: the optimizer state of the own shard, which is
//     then not in `fixed`, and 8 bytes for each of its parameters; 12 bytes for each parameter of
//     other shards, for messages; 4 bytes a parameter where gradients leave a rest for later steps;
//     on a GPU a copy of values and gradients; in a group those of all ranks, and 8 bytes a
//     parameter for whole values and gradients. On a GPU without a group, the device codes the
//     exchange: all but the messages are then in `fixed`, with the numbers of a bucket several
//     times over, and no copy is needed. Replicas that train apart (local-sgd) have whole optimizer
//     state in `fixed`, 4 bytes for each parameter of the own shard (outer momentum), and 12 bytes
//     a parameter (anchors and differences)
//   - 4 encoded boundary tensors; in clean validation they are as large as in fp32
//   - 64 MiB, through which snapshots come from the GPU
//   - kProgramBytes
//
// Where steps overlap (ScheduleTraits::overlaps_steps), parameters, gradients and casts exist
// twice, and on a GPU also what passes keep, because graphs are recorded for both versions; a
// snapshot has the parameters of both.
//
// In a group of ranks (group.tensor), parameters, gradients, optimizer state, casts and logits are
// a rank's share, and so is what autograd keeps between split matrices. Norms, the residual and
// boundary tensors are whole on every rank; with group.sequence norms and residuals cover the
// rank's tokens. One snapshot more holds what ranks have copied before it is put together. On a CPU
// the devices of the ranks share the snapshots and kProgramBytes of their process. On a GPU each
// rank has its own 64 MiB in `host`. NCCL's own memory is not counted.
//
// Attention keeps no T x T matrix, because the fused kernels of CPU and GPU do not.
// memory_parity_test and memory_gpu_test compare these sums with what LibTorch takes.
StageMemory MemoryOf(const RunSpec& spec, uint32_t vocabulary, uint32_t layers, bool first,
                     bool last, bool on_gpu = false);

}  // namespace longhaul::coordinator

// SPDX-License-Identifier: Apache-2.0
/// Included before an example's own text: what the example calls of CUDA's run time, and how it finds functions of NCCL's, is the emulation's then
/// (emulated_cuda.cc), whose main calls the example's. The headers of both stay NVIDIA's, so that what is defined has their types.
#pragma once

#define cudaFree emulated_cudaFree
#define cudaFreeHost emulated_cudaFreeHost
#define cudaGetDeviceCount emulated_cudaGetDeviceCount
#define cudaGetErrorString emulated_cudaGetErrorString
#define cudaHostAlloc emulated_cudaHostAlloc  // cudaMallocHost of <cuda_runtime.h> calls it
#define cudaMalloc emulated_cudaMalloc
#define cudaMemcpyAsync emulated_cudaMemcpyAsync
#define cudaSetDevice emulated_cudaSetDevice
#define cudaStreamCreateWithFlags emulated_cudaStreamCreateWithFlags
#define cudaStreamDestroy emulated_cudaStreamDestroy
#define cudaStreamSynchronize emulated_cudaStreamSynchronize

#define dlopen emulated_dlopen
#define dlsym emulated_dlsym

#define main example_main
int main();

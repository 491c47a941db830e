# skein::torch: LibTorch out of the wheel in SKEIN_WHEELS. CMake's own package file is not used:
# it insists on nvcc even for a CPU build, and puts torch's fmt in front of the distribution's.
set(T "${SKEIN_WHEELS}/torch")
if(NOT EXISTS "${T}/include/ATen/core/Tensor.h")
  message(FATAL_ERROR "LibTorch is not in ${SKEIN_WHEELS}: run tools/setup.sh (or `make setup`)")
endif()

add_library(skein_torch INTERFACE)
add_library(skein::torch ALIAS skein_torch)
# -idirafter: the wheel carries a newer fmt, and mixing the two neither compiles nor links.
target_compile_options(skein_torch INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-idirafter${T}/include>
  $<$<COMPILE_LANGUAGE:CXX>:-idirafter${T}/include/torch/csrc/api/include>)
target_compile_definitions(skein_torch INTERFACE
  AT_PER_OPERATOR_HEADERS USE_DISTRIBUTED USE_C10D_GLOO USE_RPC USE_TENSORPIPE)
target_link_options(skein_torch INTERFACE "-L${T}/lib")  # not link_directories: CMake would add an absolute RPATH
target_link_libraries(skein_torch INTERFACE -Wl,--no-as-needed torch_cpu c10)
# The wheel's libraries find NVIDIA's by their own RPATH; the linker need not.
target_link_options(skein_torch INTERFACE -Wl,--allow-shlib-undefined)

if(SKEIN_CUDA)
  # C++17: CMake 3.25 cannot drive nvcc 13 in C++20 mode. `.cu` files are free of torch headers.
  set(CMAKE_CUDA_STANDARD 17)
  set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 90a-real)
  enable_language(CUDA)
  string(APPEND CMAKE_CUDA_FLAGS " --compress-mode=size")  # a tenth of the bytes: programs travel
  find_package(CUDAToolkit REQUIRED)
  # For the few files that include headers of CUDA or NCCL. All others compile alike in both builds, so that ccache has them.
  set(SKEIN_CUDA_OPTIONS -idirafter${SKEIN_WHEELS}/nvidia/nccl/include -idirafter${CUDAToolkit_INCLUDE_DIRS} -DUSE_C10D_NCCL)
  target_link_libraries(skein_torch INTERFACE torch_cuda c10_cuda torch ${SKEIN_WHEELS}/nvidia/cu13/lib/libcudart.so.13)
endif()

# Programs find LibTorch relative to themselves: in a build tree, or as dist/lib beside dist/bin.
file(RELATIVE_PATH SKEIN_TORCH_FROM_BIN "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" "${T}/lib")
file(RELATIVE_PATH SKEIN_CUDART_FROM_BIN "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" "${SKEIN_WHEELS}/nvidia/cu13/lib")
set(SKEIN_TORCH_RPATH "$ORIGIN/../lib:$ORIGIN/${SKEIN_TORCH_FROM_BIN}:$ORIGIN/${SKEIN_CUDART_FROM_BIN}")

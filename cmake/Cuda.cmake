# Finds CUDA's compiler where FASTLOADER_CUDA wants it, and says what the CUDA backend is made of:
# FASTLOADER_CUDA_SOURCES and FASTLOADER_CUDA_LIBRARIES. With a compiler these are all files of
# csrc/backend/cuda but cuda_absent.cpp, and CUDA's static runtime, or the runtime of
# tests/emulation/runtime where FASTLOADER_CUDA_EMULATED asks for it. Without one it is cuda_absent.cpp,
# and no library.
if(NOT FASTLOADER_CUDA MATCHES "^(auto|on|off)$")
  message(FATAL_ERROR "FASTLOADER_CUDA=${FASTLOADER_CUDA}: use auto, on or off")
endif()

if(FASTLOADER_CUDA_EMULATED AND NOT FASTLOADER_CUDA STREQUAL "on")
  message(FATAL_ERROR "FASTLOADER_CUDA_EMULATED needs FASTLOADER_CUDA=on: what nvcc compiles is "
    "linked with the emulated runtime")
endif()

set(FASTLOADER_HAVE_CUDA OFF)
if(NOT FASTLOADER_CUDA STREQUAL "off")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(FASTLOADER_HAVE_CUDA ON)
  elseif(FASTLOADER_CUDA STREQUAL "on")
    message(FATAL_ERROR "FASTLOADER_CUDA=on, but no CUDA compiler was found. Put nvcc on PATH, set "
      "CUDACXX to it, or use FASTLOADER_CUDA=auto.")
  endif()
endif()

if(FASTLOADER_HAVE_CUDA)
  # Turing to Hopper as machine code, later GPUs through PTX. CMAKE_CUDA_ARCHITECTURES or the
  # environment's CUDAARCHS override it.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
    set(CMAKE_CUDA_ARCHITECTURES 75-real 80-real 86-real 89-real 90-real 90-virtual)
  endif()
  set(CMAKE_CUDA_STANDARD 17)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  if(FASTLOADER_CUDA_EMULATED)
    set(CMAKE_CUDA_RUNTIME_LIBRARY None)
  else()
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  set(FASTLOADER_CUDA_SOURCES
    csrc/backend/cuda/augment.cu
    csrc/backend/cuda/cuda_backend.cpp
    csrc/backend/cuda/cuda_check.cpp
    csrc/backend/cuda/cuda_handles.cpp
    csrc/backend/cuda/cuda_memory.cpp
    csrc/backend/cuda/cuda_report.cpp
    csrc/backend/cuda/cuda_stream.cpp
    csrc/backend/cuda/normalize.cu
    csrc/backend/cuda/numa.cpp)
  list(JOIN CMAKE_CUDA_ARCHITECTURES " " architectures)
  set_source_files_properties(csrc/backend/cuda/cuda_report.cpp PROPERTIES
    COMPILE_DEFINITIONS "FASTLOADER_CUDA_ARCHITECTURES=\"${architectures}\"")
  if(FASTLOADER_CUDA_EMULATED)
    set(FASTLOADER_CUDA_LIBRARIES cuda_emulated_runtime)  # of tests/emulation/runtime
  else()
    set(FASTLOADER_CUDA_LIBRARIES CUDA::cudart_static)
  endif()
  message(STATUS "fastloader: CUDA ${CMAKE_CUDA_COMPILER_VERSION}, "
    "architectures ${CMAKE_CUDA_ARCHITECTURES}")
else()
  set(FASTLOADER_CUDA_SOURCES csrc/backend/cuda/cuda_absent.cpp)
  set(FASTLOADER_CUDA_LIBRARIES "")
  message(STATUS "fastloader: without CUDA (FASTLOADER_CUDA=${FASTLOADER_CUDA})")
endif()

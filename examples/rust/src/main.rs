//! Computes a convolution in one thread and in several, with the same bits.
use std::ffi::{c_char, c_int, c_void, CStr};

type Task = extern "C" fn(argument: *mut c_void, index: c_int);
type ParallelFor = extern "C" fn(context: *mut c_void, count: c_int, task: Task, argument: *mut c_void) -> c_int;

extern "C" {
    fn conv_conv2d_64x56x56_64_3x3(data: *const f32, filter: *const f32, output: *mut f32) -> c_int;
    fn conv_set_parallel_for(parallel_for: Option<ParallelFor>, context: *mut c_void, threads: c_int) -> c_int;
    fn conv_error_string(status: c_int) -> *const c_char;
}

const DATA: usize = 56 * 56 * 64;
const FILTER: usize = 3 * 3 * 64 * 64;
const OUTPUT: usize = 56 * 56 * 64;

/// Tasks may run in any thread: they write to disjoint parts of the library's arrays.
struct Argument(*mut c_void);
unsafe impl Sync for Argument {}

extern "C" fn parallel_for(_: *mut c_void, count: c_int, task: Task, argument: *mut c_void) -> c_int {
    let argument = &Argument(argument);
    std::thread::scope(|scope| {
        for index in 1..count {
            scope.spawn(move || task(argument.0, index));
        }
        task(argument.0, 0);
    });
    0
}

fn check(status: c_int) -> Result<(), String> {
    match status {
        0 => Ok(()),
        _ => Err(unsafe { CStr::from_ptr(conv_error_string(status)) }.to_string_lossy().into_owned()),
    }
}

fn convolve(data: &[f32], filter: &[f32]) -> Result<Vec<f32>, String> {
    assert!(data.len() == DATA && filter.len() == FILTER);
    let mut output = vec![0.0; OUTPUT];
    check(unsafe { conv_conv2d_64x56x56_64_3x3(data.as_ptr(), filter.as_ptr(), output.as_mut_ptr()) })?;
    Ok(output)
}

fn main() -> Result<(), String> {
    let data: Vec<f32> = (0..DATA).map(|i| (i % 7) as f32 - 3.0).collect();
    let filter: Vec<f32> = (0..FILTER).map(|i| (i % 5) as f32 - 2.0).collect();
    let alone = convolve(&data, &filter)?;
    check(unsafe { conv_set_parallel_for(Some(parallel_for), std::ptr::null_mut(), 4) })?;
    let together = convolve(&data, &filter)?;
    assert!(alone.iter().map(|x| x.to_bits()).eq(together.iter().map(|x| x.to_bits())));
    println!("the same bits in one thread and in four; the first is {}", alone[0]);
    Ok(())
}

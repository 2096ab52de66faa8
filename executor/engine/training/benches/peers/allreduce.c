/* All-reduce by MPI. Rank 0 prints the seconds of each round. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int floats = atoi(argv[1]), rounds = atoi(argv[2]), rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    float *values = malloc(sizeof(float) * floats);
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < floats; i++)
            values[i] = 1.0f;
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, values, floats, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        double took = MPI_Wtime() - began;
        if (rank == 0) {
            printf("%.9f\n", took);
            fflush(stdout);
        }
    }
    if (values[floats - 1] != (float)size)
        return 1;
    MPI_Finalize();
    return 0;
}
